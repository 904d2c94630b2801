"""Models this small are slower with more threads, and two test processes share two cores."""

import torch

torch.set_num_threads(1)
