#!/bin/sh
# Builds the two images from a checkout: REGISTRY/bench:TAG and REGISTRY/airflow:TAG, by default trainbench/...:VERSION.
# With LOCAL=yes also REGISTRY/airflow-local:TAG, Airflow and the training stack in one image for one machine.
#
#   scripts/build_images.sh                                              # docker, or podman, whichever is there
#   REGISTRY=registry.example/ml BASE_IMAGE=registry.example/python:3.12.13-slim-bookworm scripts/build_images.sh
#   EXTRA_PACKAGES="s3fs" BUILD_FLAGS="--network host" ENGINE="buildah" scripts/build_images.sh
#
# TORCH replaces the torch of requirements/image-cuda.txt and its CUDA packages, for example torch==2.13.0+cpu for a trial without GPUs.
set -eu
cd "$(dirname "$0")/.."

REGISTRY=${REGISTRY:-trainbench}
TAG=${TAG:-$(sed -n 's/^__version__ = "\([^"]*\)".*/\1/p' plugins/trainbench/__init__.py)}
BASE_IMAGE=${BASE_IMAGE:-}
BUILD_FLAGS=${BUILD_FLAGS:-}
ENGINE=${ENGINE:-}

if [ -z "$ENGINE" ]; then
    for candidate in docker podman buildah; do
        if command -v "$candidate" >/dev/null 2>&1; then ENGINE=$candidate; break; fi
    done
fi
if [ -z "$ENGINE" ]; then
    echo "build_images: no docker, podman or buildah on the PATH: install one, or name it with ENGINE=" >&2
    exit 2
fi

# build NAME DOCKERFILE [--build-arg X=Y ...]
build() {
    name=$1 file=$2
    shift 2
    echo "build_images: $REGISTRY/$name:$TAG"
    # BUILD_FLAGS is a list of words on purpose.
    # shellcheck disable=SC2086
    "$ENGINE" build $BUILD_FLAGS "$@" --tag "$REGISTRY/$name:$TAG" --file "$file" .
}

base=${BASE_IMAGE:+--build-arg=BASE_IMAGE=$BASE_IMAGE}
build bench docker/bench/Dockerfile ${base:+"$base"} --build-arg "TORCH=${TORCH:-}"
build airflow docker/airflow/Dockerfile ${base:+"$base"} --build-arg "EXTRA_PACKAGES=${EXTRA_PACKAGES:-}"
if [ "${LOCAL:-no}" = yes ]; then
    build airflow-local docker/airflow/local.Dockerfile \
        --build-arg "BENCH_IMAGE=$REGISTRY/bench:$TAG" --build-arg "AIRFLOW_IMAGE=$REGISTRY/airflow:$TAG"
fi
