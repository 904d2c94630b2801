"""The Kubernetes objects that hold worker replicas, one file a kind: what a pool's actor writes beside instances."""
