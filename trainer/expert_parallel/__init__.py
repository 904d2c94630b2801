"""One trainer of several ranks: attention on every rank with rows of its own, experts divided among them.

    mesh.py        who takes part, and the two groups: orders and states over gloo, tokens over what was declared
    channel.py     tensors by name from the lead to all, and from all to the lead
    dispatch.py    how tokens reach their experts and come back; `all_to_all.py` and `deepep.py` do it
    experts.py     a shard of a layer's experts
    update.py      gradient steps whose sum over the ranks is the step of one process
    crew.py        the lead's learner, and what the others do
    modes.py       the modes there are: one line each
    transport.py   what the tokens really travel over, from NCCL's own log and the NICs' counters
    manifest.py    what each rank was built from; ranks that differ do not start

A crew is fixed: a rank that dies ends all of them, and they start again together from the checkpoint (torchrun's
restarts, a JobSet, a LeaderWorkerSet). An expert-parallel peer cannot be lost inside a process (research: DeepEP's
kernels trap after 100 s), so nothing here tries to.
"""
