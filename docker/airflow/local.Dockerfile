# The Airflow image with the training stack beside it, in its own environment: the local launcher then runs the benchmark
# as processes of this container. For one machine without Kubernetes; docker/compose.local.yaml uses it.
ARG BENCH_IMAGE=trainbench/bench:0.2.0
ARG AIRFLOW_IMAGE=trainbench/airflow:0.2.0
FROM ${BENCH_IMAGE} AS bench

FROM ${AIRFLOW_IMAGE}
USER 0:0
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends g++ gcc libc6-dev procps \
    && rm -rf /var/lib/apt/lists/*
COPY --from=bench /opt/bench /opt/bench
ENV TRAINBENCH_LAUNCHER=local \
    TRAINBENCH_LOCAL_PYTHON=/opt/bench/bin/python \
    TRAINBENCH_LOCAL_PYTHONPATH=/opt/airflow \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 50000:0
