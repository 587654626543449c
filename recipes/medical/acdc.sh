#!/usr/bin/env bash
# Hearts from other scanners: trained on slices of 10 mm, tested on slices of 5 to 7 mm and on pixels below 1 mm.
# SonicNet told the voxel spacing, SonicNet not told it, and MONAI's U-Net, with the same patches in the same order.
#   bash recipes/medical/acdc.sh DATA OUT     DATA has images/ and labels/ of ACDC; about an hour on two cores
set -euo pipefail
data=$1 out=$2 here=$(dirname "$0")

# Told or not, the anatomy is scaled in the image, so that all networks learn from the same patches.
torchsonic train volumes --data "$data" --split "$here/acdc.json" --patient 'patient[0-9]+' --out "$out/runs" \
    --scale-by image --steps 400 --model sonicnet3d.light
torchsonic train volumes --data "$data" --split "$here/acdc.json" --patient 'patient[0-9]+' --out "$out/runs" \
    --scale-by image --steps 400 --model sonicnet3d.light --no-tell-spacing
torchsonic train volumes --data "$data" --split "$here/acdc.json" --patient 'patient[0-9]+' --out "$out/runs" \
    --scale-by image --steps 400 --model unet

for group in same thin fine; do
    for kind in images labels; do
        mkdir -p "$out/$group/$kind"
        while read -r case; do ln -sfr "$data/$kind/$case.nii.gz" "$out/$group/$kind/"; done < "$here/acdc_$group.txt"
    done
    torchsonic evaluate "$out"/runs/volumes/*/*/acdc-seed0 --external "$out/$group" \
        --classes "right ventricle" myocardium "left ventricle" --out "$out/evaluation/$group"
done

# Both shifts together.
for group in thin fine; do
    mkdir -p "$out/shifted/labels"
    ln -sfr "$out/$group"/labels/* "$out/shifted/labels/"
    for model in "$out/evaluation/$group"/predictions/*; do
        mkdir -p "$out/shifted/predictions/$(basename "$model")"
        ln -sfr "$model"/* "$out/shifted/predictions/$(basename "$model")/"
    done
done
torchsonic evaluate volumes --labels "$out/shifted/labels" --out "$out/evaluation/shifted" \
    --classes "right ventricle" myocardium "left ventricle" --predictions \
    "$out"/shifted/predictions/sonicnet3d.light-{told,not-told,untold} "$out/shifted/predictions/unet"
