"""A scenario whose trainer costs nothing, as `headrace record` writes one that was told no cost."""

from pathlib import Path

from scaler.simulate.loading import shipped_scenarios


def a_free_trainer(folder: Path) -> Path:
    """The shipped `small` in a file, with a trainer for 0 USD: on capacity with refunds a sample may cost nothing."""
    text = shipped_scenarios()["small"].read_text()
    file = folder / "free.yaml"
    file.write_text(text.replace('nodeUsdPerH: "60"', 'nodeUsdPerH: "0"'))
    return file
