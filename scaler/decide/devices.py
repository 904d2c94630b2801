"""EFA devices and accelerators of the instance types that trainers run on: what a node must offer where EC2 cannot be asked.

Source: EC2's DescribeInstanceTypes (`NetworkInfo.EfaInfo.MaximumEfaInterfaces`, `GpuInfo`, `NeuronInfo`), as of moto 5.2.5's
record of it, which a test holds this table to; p4d to p6 also in awsome-distributed-ai's `instance-profiles.conf`.
An EFA interface is attached by the launch template: fewer than the type has is a choice, which `efaDevices` declares.
Types that are not here have no expectation.
"""

from types import MappingProxyType

from scaler.model.trainer_facts import Shape

EFA = "vpc.amazonaws.com/efa"
ACCELERATORS = ("nvidia.com/gpu", "aws.amazon.com/neurondevice", "aws.amazon.com/neuron")
"""Resource names that device plug-ins advertise."""

_EFA_AND_ACCELERATORS = {
    "g5.8xlarge": (1, 1),
    "g5.12xlarge": (1, 4),
    "g5.16xlarge": (1, 1),
    "g5.24xlarge": (1, 4),
    "g5.48xlarge": (1, 8),
    "g6.8xlarge": (1, 1),
    "g6.12xlarge": (1, 4),
    "g6.16xlarge": (1, 1),
    "g6.24xlarge": (1, 4),
    "g6.48xlarge": (1, 8),
    "g6e.8xlarge": (1, 1),
    "g6e.12xlarge": (1, 4),
    "g6e.16xlarge": (1, 1),
    "g6e.24xlarge": (2, 4),
    "g6e.48xlarge": (4, 8),
    "g7e.8xlarge": (1, 1),
    "g7e.12xlarge": (1, 2),
    "g7e.24xlarge": (2, 4),
    "g7e.48xlarge": (4, 8),
    "p3dn.24xlarge": (1, 8),
    "p4d.24xlarge": (4, 8),
    "p4de.24xlarge": (4, 8),
    "p5.4xlarge": (1, 1),
    "p5.48xlarge": (32, 8),
    "p5e.48xlarge": (32, 8),
    "p5en.48xlarge": (16, 8),
    "p6-b200.48xlarge": (8, 8),
    "p6-b300.48xlarge": (16, 8),
    "trn1.32xlarge": (8, 16),
    "trn1n.32xlarge": (16, 16),
    "trn2.48xlarge": (16, 16),
}
SHAPES = MappingProxyType(
    {name: Shape(efa=efa, accelerators=accelerators) for name, (efa, accelerators) in _EFA_AND_ACCELERATORS.items()}
)
_UNKNOWN = Shape(efa=0, accelerators=0)


def shape_of(instance_type: str) -> Shape:
    """Devices of an instance type (HyperPod's `ml.` names too); none where the table does not know it."""
    return SHAPES.get(instance_type.removeprefix("ml."), _UNKNOWN)
