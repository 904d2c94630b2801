"""The `headrace` command: one function a subcommand, each importing what it needs only when called.

Exit codes: 0 done, 1 the answer is bad (audit found something, the demo lost something), 2 the input is wrong,
3 the store or a service does not answer.
"""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
bench = typer.Typer(
    no_args_is_help=True, help="Measure this machine; every number beside a floor measured in the same run."
)
app.add_typer(bench, name="bench")

FleetFile = Annotated[Path, typer.Option("--file", "-f", help="RolloutFleet YAML.")]
LedgerArg = Annotated[str, typer.Argument(help="Ledger URL, or the path of a SQLite ledger.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def run(file: FleetFile) -> None:
    """Run the controller for a fleet until told to stop."""
    from scaler.commands.run import run_fleet

    raise typer.Exit(run_fleet(file))


@app.command()
def demo(
    trace: Annotated[Path | None, typer.Option(help="Capacity trace; the shipped synthetic one by default.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of prompts, weights and interruptions.")] = 0,
    summary: Annotated[Path | None, typer.Option(help="Write the figures as JSON.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the run (PNG or SVG).")] = None,
    updates: Annotated[int, typer.Option(help="Policy updates to run for.")] = 60,
    progress: Annotated[bool, typer.Option(help="Publish progress; --no-progress shows what that is worth.")] = True,
    keep: Annotated[Path | None, typer.Option(help="Keep ledger, logs and weights in this folder.")] = None,
) -> None:
    """Run the whole loop on this machine: trainer, controller, and workers that come and go."""
    from scaler.commands.demo import DemoOptions, run_demo

    options = DemoOptions(
        trace=trace, seed=seed, summary=summary, plot=plot, updates=updates, progress=progress, keep=keep
    )
    raise typer.Exit(run_demo(options))


@app.command()
def validate(file: Annotated[Path, typer.Argument(help="RolloutFleet YAML.")]) -> None:
    """Check a fleet's YAML: one line a fault, exit code 2 if any."""
    from scaler.commands.validate import validate_file

    raise typer.Exit(validate_file(file))


@app.command()
def schema() -> None:
    """Print the JSON Schema of a fleet's YAML."""
    from scaler.commands.validate import print_schema

    raise typer.Exit(print_schema())


@app.command()
def audit(
    ledger: LedgerArg, job: Annotated[str, typer.Option(help="Job name.")] = "default", json: JsonFlag = False
) -> None:
    """Prove from a ledger's history that nothing was lost, doubled or trained twice; exit code 1 if something was."""
    from scaler.commands.audit import audit_ledger

    raise typer.Exit(audit_ledger(ledger, job, as_json=json))


@app.command()
def explain(
    url: Annotated[str, typer.Option(help="Address of the controller's HTTP API.")] = "http://127.0.0.1:9090",
    last: Annotated[int, typer.Option(help="How many decisions.")] = 10,
    json: JsonFlag = False,
) -> None:
    """Say why the controller did what it did."""
    from scaler.commands.explain import explain_decisions

    raise typer.Exit(explain_decisions(url, last, as_json=json))


@bench.command("ledger")
def bench_ledger(
    engine: Annotated[str, typer.Option(help="sqlite or valkey.")] = "sqlite",
    clients: Annotated[int, typer.Option(help="Client processes.")] = 8,
    body_bytes: Annotated[int, typer.Option(help="Size of a sample's body.")] = 2048,
    seconds: Annotated[float, typer.Option(help="Length of each measurement.")] = 5.0,
    units: Annotated[int, typer.Option(help="Units in the store beforehand.")] = 0,
    json: JsonFlag = False,
) -> None:
    """Lease and commit pairs a second, beside the fewest bare statements that move a row twice."""
    from scaler.commands.bench_ledger import run_bench

    raise typer.Exit(run_bench(engine, clients, body_bytes, seconds, units, as_json=json))


def main() -> None:
    """Console entry point."""
    app()


if __name__ == "__main__":
    main()
