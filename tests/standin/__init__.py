"""A Kubernetes API server with scheduler and kubelets on the loopback, for tests: see README.md.

These names are its public surface; nothing outside imports its modules, and it imports nothing of what it tests.
"""

from tests.standin.client import StandinCluster, unavailable
from tests.standin.handle import Handle, Object
from tests.standin.images import python_image, scripted_image
from tests.standin.manifests import roles

__all__ = ["Handle", "Object", "StandinCluster", "python_image", "roles", "scripted_image", "unavailable"]
