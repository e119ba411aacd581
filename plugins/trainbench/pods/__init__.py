"""The plan's runs -> pods: their manifests, how several meet as one gang, and how a pod ended."""
