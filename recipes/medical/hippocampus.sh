#!/usr/bin/env bash
# Hippocampi through nnU-Net's own commands: SonicNet against nnU-Net's network, same fold, patches and iterations.
#   bash recipes/medical/hippocampus.sh DATA OUT     DATA has images/ and labels/; about an hour on two cores
set -euo pipefail
data=$1
mkdir -p "$2"/raw "$2"/preprocessed "$2"/results
out=$(realpath "$2")
export nnUNet_raw=$out/raw nnUNet_preprocessed=$out/preprocessed nnUNet_results=$out/results nnUNet_def_n_proc=2
export nnUNet_extTrainer=$out/trainers

torchsonic nnunet install "$out/trainers"
torchsonic nnunet convert --data "$data" --out "$out/raw" --name Hippocampus --id 4 --labels anterior posterior
nnUNet_n_proc_DA=2 nnUNetv2_plan_and_preprocess -d 4 -c 3d_fullres --verify_dataset_integrity

# With no process of its own for the data, both trainers see the same patches.
export nnUNet_n_proc_DA=0 TORCHSONIC_NNUNET_EPOCHS=20 TORCHSONIC_NNUNET_ITERATIONS=40 TORCHSONIC_NNUNET_VAL_ITERATIONS=10
export TORCHSONIC_NNUNET_BATCH_SIZE=2 TORCHSONIC_NNUNET_SEED=0
nnUNetv2_train 4 3d_fullres 0 -tr nnUNetTrainerBudget -device cpu
export TORCHSONIC_NNUNET_PRESET=light TORCHSONIC_NNUNET_WIDTH=64 TORCHSONIC_NNUNET_FIELD=16
export TORCHSONIC_NNUNET_OPTIMISER=adamw TORCHSONIC_NNUNET_LEARNING_RATE=5e-3 TORCHSONIC_NNUNET_WEIGHT_DECAY=1e-4
nnUNetv2_train 4 3d_fullres 0 -tr nnUNetTrainerSonic -device cpu

# Both against the labels of the fold.
trained=$out/results/Dataset004_Hippocampus
mkdir -p "$out/labels"
for prediction in "$trained"/nnUNetTrainerSonic__nnUNetPlans__3d_fullres/fold_0/validation/*.nii.gz; do
    ln -sfr "$out/raw/Dataset004_Hippocampus/labelsTr/$(basename "$prediction")" "$out/labels/"
done
torchsonic evaluate volumes --labels "$out/labels" --classes anterior posterior --out "$out/evaluation" --predictions \
    "$trained/nnUNetTrainerSonic__nnUNetPlans__3d_fullres/fold_0/validation" \
    "$trained/nnUNetTrainerBudget__nnUNetPlans__3d_fullres/fold_0/validation"
