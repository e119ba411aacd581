"""The place where the benchmarks run: asked whether it is ready, watched, and swept. The only door to Kubernetes."""
