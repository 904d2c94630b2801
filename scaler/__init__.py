"""The Headrace controller: observes an RL job, decides how many rollout replicas it needs, and acts."""

__version__ = "0.1.0"
