"""A real Kubernetes control plane on loopback, for tests and for trying things out.

Policy: what we talk to in production is what we test against. etcd, kube-apiserver, kube-controller-manager,
kube-scheduler, kwok (fake nodes and pods), Karpenter with its kwok provider, the KubeRay operator and the LeaderWorkerSet
controller are built from their Go modules (`tools/<name>/go.mod` and `go.sum` are all that is ours) into a cache outside
the checkout (`build`), and started on free loopback ports in a folder of their own (`control_plane`). Custom resource
definitions are read from the module cache when a control plane starts; nothing of others is copied.

Invariants: a control plane leaves neither processes nor its folder behind; its processes die with whoever started them;
two of them on one machine never share a port, a key or a folder.

Non-goals: kubelets, container images, a network between pods, more than one API server. A pod on a kwok node runs
nothing: where a data path matters, processes of ours stand for it.
"""
