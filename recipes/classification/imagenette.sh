#!/usr/bin/env bash
# Photographs of ten classes at 128 px: two Sonic networks and three rivals, 2,000 steps of 32 images each, tested at six sizes.
#   bash recipes/classification/imagenette.sh DATA OUT     DATA has train/CLASS/ and val/CLASS/; 12 to 26 minutes each on one core
set -euo pipefail
data=$1 out=$2

torchsonic train images --data "$data" --out "$out/runs" --model resnet50 --model-options width=24 depths=2,2,2,2
torchsonic train images --data "$data" --out "$out/runs" --model resnet50_gfnet --model-options width=24 depths=2,2,2,2
torchsonic train images --data "$data" --out "$out/runs" --model resnet50_s4nd --model-options width=24 depths=2,2,2,2
torchsonic train images --data "$data" --out "$out/runs" --model resnet50_sonic \
    --model-options width=12 depths=2,2,2,2 operator_options.num_modes=12,24,32,48
torchsonic train images --data "$data" --out "$out/runs" --model sonic_tiny

torchsonic evaluate "$out"/runs/images/*/*/seed0 --data "$data" --resolutions 64,96,160,192,224 --out "$out/sizes"
torchsonic evaluate "$out"/runs/images/*/*/seed0 --data "$data" --resolutions 64,96,160,192,224 --control \
    --out "$out/sizes-control"
