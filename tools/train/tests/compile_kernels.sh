#!/usr/bin/env bash
# Compiles the CUDA kernels with nvcc, each file as the engine does, for both types of activations.
# usage: compile_kernels.sh FOLDER
set -euo pipefail

folder=$1
nvcc=$(command -v nvcc || true)
[[ -n $nvcc || ! -x /usr/local/cuda/bin/nvcc ]] || nvcc=/usr/local/cuda/bin/nvcc
if [[ -z $nvcc ]]; then
  echo "skipped: needs nvcc"
  exit 0
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

for file in "$folder"/*.cu; do
  [[ $(basename "$file") != prelude.cu ]] || continue
  for bf16 in 0 1; do
    {
      echo "#define COX_TRAIN_BF16 $bf16"
      cat "$folder/prelude.cu" "$file"
    } >"$scratch/kernel.cu"
    if ! "$nvcc" -std=c++20 -arch=sm_90 -cubin -o "$scratch/kernel.cubin" "$scratch/kernel.cu" >"$scratch/log" 2>&1; then
      cat "$scratch/log"
      echo "$(basename "$file") does not compile with COX_TRAIN_BF16 $bf16"
      exit 1
    fi
  done
done
echo ok
