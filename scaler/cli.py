"""The `headrace` command: one function a subcommand, each importing what it needs only when called.

Exit codes: 0 done, 1 the answer is bad (audit found something, the demo lost something), 2 the input is wrong,
3 the store or a service does not answer.
"""

from pathlib import Path
from typing import Annotated

import typer

from scaler.simulate.windows import Split

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
bench = typer.Typer(
    no_args_is_help=True, help="Measure this machine; every number beside a floor measured in the same run."
)
app.add_typer(bench, name="bench")

# readable=False: a file that cannot be read is told by the command, in one line like every other fault.
FleetFile = Annotated[Path, typer.Option("--file", "-f", help="RolloutFleet YAML.", readable=False)]
LedgerArg = Annotated[str, typer.Argument(help="Ledger URL, or the path of a SQLite ledger.")]
ReportArg = Annotated[Path | None, typer.Option(help="Write an HTML page with pictures.", metavar="FILE.html")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TraceOption = Annotated[
    list[str] | None, typer.Option(help="Capacity: FILE or FILE#zone1,zone2; may be repeated. Generated if left out.")
]
WindowsOption = Annotated[int, typer.Option(help="Windows of each trace, spread evenly.")]
HoursOption = Annotated[float | None, typer.Option(help="Length of a window; the scenario's if left out.")]
SeedsOption = Annotated[int, typer.Option(help="Seeds of each window, the same for every policy.")]
JobsOption = Annotated[int, typer.Option(help="Processes.")]
StoreOption = Annotated[
    Path | None, typer.Option(help="Folder of finished runs, to go on after a stop; the user's cache if left out.")
]


@app.command()
def run(
    file: FleetFile,
    cluster: Annotated[
        bool,
        typer.Option("--cluster", help="For all RolloutFleet objects of a cluster; the file is of kind Controller."),
    ] = False,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="With --cluster, from outside it; in a pod its service account is used.")
    ] = None,
) -> None:
    """Run the controller for a fleet until told to stop."""
    if cluster:
        from scaler.commands.run_cluster import run_cluster

        raise typer.Exit(run_cluster(file, kubeconfig))
    from scaler.commands.run import run_fleet

    raise typer.Exit(run_fleet(file))


@app.command()
def release(
    fleet: Annotated[str, typer.Argument(help="Name of the fleet; its object may be gone.")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="The fleet's namespace.")] = "default",
    kubeconfig: Annotated[Path | None, typer.Option(help="KUBECONFIG, or ~/.kube/config, if left out.")] = None,
    controller: Annotated[
        Path | None,
        typer.Option(
            help="The controller's settings, for its region of AWS; instances are left alone without it.",
            readable=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be taken away.")] = False,
) -> None:
    """Take a resting fleet's taints, labels, notes, protections and tags away; its capacity stays as it is."""
    from scaler.commands.release import ReleaseOptions, run_release

    options = ReleaseOptions(
        fleet=fleet, namespace=namespace, kubeconfig=kubeconfig, controller=controller, dry_run=dry_run
    )
    raise typer.Exit(run_release(options))


@app.command()
def doctor(
    fleet: Annotated[
        str | None, typer.Argument(help="Name of a fleet of a cluster; left out: the fleet of --file.")
    ] = None,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="The fleet's namespace.")] = "default",
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            help="RolloutFleet YAML; with a NAME the settings of the cluster's controller.",
            readable=False,
        ),
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="KUBECONFIG, or ~/.kube/config, if left out; else the pod's own account.")
    ] = None,
    region: Annotated[
        str | None, typer.Option(help="Region of AWS, where no settings of the controller name it.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Say what keeps a fleet from work, a line and a remedy each; only reads. Exit code 1 if something does."""
    from scaler.commands.doctor import DoctorOptions, run_doctor

    options = DoctorOptions(
        fleet=fleet, namespace=namespace, file=file, kubeconfig=kubeconfig, region=region, as_json=json
    )
    raise typer.Exit(run_doctor(options))


@app.command()
def top(
    url: Annotated[
        str | None, typer.Option(help="Address of the controller's HTTP API; http://127.0.0.1:9090 if left out.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="RolloutFleet YAML, for the address that it names.", readable=False),
    ] = None,
    fleet: Annotated[str | None, typer.Option(help="Of a cluster's controller: NAMESPACE.NAME.")] = None,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two frames.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one frame, as on a pipe.")] = False,
) -> None:
    """Show a fleet at work, or all fleets of a cluster's controller, until q or Ctrl-C; only reads."""
    from scaler.commands.top import TopOptions, run_top

    raise typer.Exit(run_top(TopOptions(url=url, file=file, fleet=fleet, every_s=every, once=once)))


@app.command("node-agent")
def node_agent(
    folder: Annotated[Path, typer.Option("--dir", help="Folder that workers on this node read.")],
    metadata_url: Annotated[str, typer.Option(help="Instance metadata.")] = "http://169.254.169.254",
    interval: Annotated[str, typer.Option(help='How often to look, like "1s".')] = "1s",
) -> None:
    """Write instance metadata's notices into files on this node until told to stop; needs no credentials."""
    from scaler.commands.node_agent import run_node_agent

    raise typer.Exit(run_node_agent(folder, metadata_url, interval))


@app.command()
def demo(
    trace: Annotated[
        Path | None, typer.Option(help="Capacity trace; the shipped synthetic one by default.", readable=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of prompts, weights and interruptions.")] = 0,
    summary: Annotated[Path | None, typer.Option(help="Write the figures as JSON.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the run (PNG or SVG).")] = None,
    updates: Annotated[int, typer.Option(help="Policy updates to run for.")] = 70,
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
def validate(
    file: Annotated[Path, typer.Argument(help="YAML of kind RolloutFleet, Controller or Scenario.", readable=False)],
) -> None:
    """Check the YAML of fleets, of a cluster's controller or of a scenario: one line a fault, exit code 2 if any."""
    from scaler.commands.validate import validate_file

    raise typer.Exit(validate_file(file))


@app.command()
def schema(
    scenario: Annotated[bool, typer.Option("--scenario", help="Of a scenario's YAML.")] = False,
    crd: Annotated[bool, typer.Option("--crd", help="As a CustomResourceDefinition, for a cluster.")] = False,
    controller: Annotated[
        bool, typer.Option("--controller", help="Of the settings of a cluster's controller.")
    ] = False,
) -> None:
    """Print the JSON Schema of a fleet's YAML."""
    if controller:
        from scaler.commands.validate import print_controller_schema

        raise typer.Exit(print_controller_schema())
    if crd:
        from scaler.commands.validate import print_definition

        raise typer.Exit(print_definition())
    if scenario:
        from scaler.commands.simulate import print_scenario_schema

        raise typer.Exit(print_scenario_schema())
    from scaler.commands.validate import print_schema

    raise typer.Exit(print_schema())


@app.command()
def audit(
    ledger: LedgerArg, job: Annotated[str, typer.Option(help="Job name.")] = "default", json: JsonFlag = False
) -> None:
    """Prove from a ledger's history that nothing was lost, doubled or trained twice; exit code 1 if something was."""
    from scaler.commands.audit import audit_ledger

    raise typer.Exit(audit_ledger(ledger, job, as_json=json))


ScenarioArg = Annotated[str, typer.Option(help="Shipped scenario (see `headrace scenarios`), or a YAML file.")]
PolicyArg = Annotated[str, typer.Option(help="Policy or preset by name, or a YAML file.")]
TraceArg = Annotated[str | None, typer.Option(help="Capacity trace, FILE or FILE#zone,zone; generated by default.")]
StartArg = Annotated[float, typer.Option(help="Hour of the trace to start at.")]
HoursArg = Annotated[float | None, typer.Option(help="Length of the run; the scenario's own by default.")]
SeedArg = Annotated[int, typer.Option(help="Seed of all draws; policies meet the same luck under the same seed.")]
DipsFlag = Annotated[bool, typer.Option("--ignore-dips", help="Take one-tick falls to 0 for failed probes.")]


@app.command()
def simulate(
    scenario: ScenarioArg,
    policy: PolicyArg,
    trace: TraceArg = None,
    start: StartArg = 0.0,
    hours: HoursArg = None,
    seed: SeedArg = 0,
    ignore_dips: DipsFlag = False,
    report: ReportArg = None,
    json: JsonFlag = False,
) -> None:
    """Say what a policy would cost and how long the trainer would wait, before anything runs."""
    from scaler.commands.simulate import run_simulate
    from scaler.commands.worlds import WorldOptions

    options = WorldOptions(
        scenario=scenario,
        policy=policy,
        trace=trace,
        start_h=start,
        hours=hours,
        seed=seed,
        ignore_dips=ignore_dips,
    )
    raise typer.Exit(run_simulate(options, as_json=json, report=report))


@app.command()
def optimum(
    scenario: ScenarioArg,
    trace: TraceArg = None,
    start: StartArg = 0.0,
    hours: HoursArg = None,
    seed: SeedArg = 0,
    ignore_dips: DipsFlag = False,
    problem: Annotated[
        Path | None, typer.Option(help="Write the problem itself as JSON, for a solver of your own.")
    ] = None,
    foresight: Annotated[
        str,
        typer.Option(
            help="What a planner reaches that knows capacity so far ahead, as 0m,30m,4h,all: costs achieved, neither bounds nor "
            "optima, so that more foresight need not cost less."
        ),
    ] = "",
    in_the_mean: Annotated[
        bool,
        typer.Option(
            "--in-the-mean",
            help="A higher bound, of the mean over many runs: for whoever knows all of capacity, but not how long a launch "
            "will take, nor whom a fall will.",
        ),
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Say what no policy can beat: a proven lower bound of the cost per sample, with the future known."""
    from scaler.commands.optimum import NOBODY, run_optimum
    from scaler.commands.worlds import WorldOptions

    options = WorldOptions(
        scenario=scenario,
        policy=NOBODY,
        trace=trace,
        start_h=start,
        hours=hours,
        seed=seed,
        ignore_dips=ignore_dips,
    )
    raise typer.Exit(run_optimum(options, problem, foresight, in_the_mean=in_the_mean, as_json=json))


@app.command()
def scenarios(json: JsonFlag = False) -> None:
    """List the shipped scenarios, a line each.

    The first lines of each file say what the marks beside its numbers mean: of the article named there, of the project's notes
    of papers, code and price lists (`research/*.md`, which are not in the repository), arithmetic, or assumed.
    """
    from scaler.commands.simulate import list_scenarios

    raise typer.Exit(list_scenarios(as_json=json))


@app.command()
def record(
    source: Annotated[
        str, typer.Option("--from", help="Fleet's YAML, the folder that holds it, or a controller's URL.")
    ],
    out: Annotated[Path, typer.Option(help="Write the capacity trace (CSV).")],
    scenario: Annotated[Path | None, typer.Option(help="Write the measured rates as a scenario (YAML).")] = None,
    trainer_usd_per_h: Annotated[float, typer.Option(help="What the trainer costs an hour.")] = 0.0,
    every: Annotated[float, typer.Option(help="Of a URL: seconds between looks.")] = 5.0,
    hours: Annotated[float | None, typer.Option(help="Of a URL: how long; until Ctrl-C by default.")] = None,
    json: JsonFlag = False,
) -> None:
    """Write a fleet's history of capacity as a trace that `simulate` replays."""
    from scaler.commands.record import RecordOptions, run_record

    options = RecordOptions(
        source=source,
        out=out,
        scenario=scenario,
        trainer_usd_per_h=trainer_usd_per_h,
        every_s=every,
        hours=hours,
        as_json=json,
    )
    raise typer.Exit(run_record(options))


@app.command()
def explain(
    url: Annotated[str, typer.Option(help="Address of the controller's HTTP API.")] = "http://127.0.0.1:9090",
    last: Annotated[int, typer.Option(help="How many decisions.")] = 10,
    fleet: Annotated[str | None, typer.Option(help="Of a cluster's controller: NAMESPACE.NAME.")] = None,
    json: JsonFlag = False,
) -> None:
    """Say why the controller did what it did."""
    from scaler.commands.explain import explain_decisions

    raise typer.Exit(explain_decisions(url, last, as_json=json, fleet=fleet))


@app.command()
def compare(
    policies: Annotated[str, typer.Option(help="Policies, presets or files, with commas.")],
    scenarios: Annotated[str, typer.Option(help="Shipped scenarios or files, with commas.")],
    trace: TraceOption = None,
    windows: WindowsOption = 5,
    hours: HoursOption = None,
    seeds: SeedsOption = 1,
    split: Annotated[Split, typer.Option(help="Part of each trace: train is its first 60 %.")] = Split.ALL,
    ignore_dips: DipsFlag = False,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="Policy to measure gaps from; if left out, the one nearest to the bound in the mean, where marginal_value (the "
            "default of a fleet) is taken only if there is no other."
        ),
    ] = None,
    jobs: JobsOption = 1,
    store: StoreOption = None,
    csv: Annotated[Path | None, typer.Option(help="Write the rows as CSV.")] = None,
    report: ReportArg = None,
    json: JsonFlag = False,
) -> None:
    """Put policies side by side over windows of traces, with the clairvoyant optimum beside them."""
    from scaler.commands.compare import Output, grid_of, run_compare
    from scaler.commands.processes import default_store

    grid = grid_of(policies, scenarios, trace or (), windows, hours, seeds, split, ignore_dips=ignore_dips)
    output = Output(as_json=json, csv=csv, report=report)
    raise typer.Exit(run_compare(grid, output, baseline=baseline, jobs=jobs, store=store or default_store()))


@app.command()
def tune(
    policy: Annotated[str, typer.Option(help="Policy, preset or file to start from.")],
    scenarios: Annotated[str, typer.Option(help="Shipped scenarios or files, with commas.")],
    out: Annotated[Path, typer.Option(help="Write the policy, or the fleet with it, as YAML.")],
    trace: TraceOption = None,
    windows: WindowsOption = 5,
    hours: HoursOption = None,
    seeds: SeedsOption = 1,
    trials: Annotated[int, typer.Option(help="Sets of parameters to try.")] = 40,
    storage: Annotated[
        str | None, typer.Option(help="Share the search: journal:FILE, sqlite:///FILE or another database.")
    ] = None,
    fleet: Annotated[
        Path | None,
        typer.Option(
            help="RolloutFleet YAML to put the policy into; comments stay, and for another folder paths are written out.",
            readable=False,
        ),
    ] = None,
    ignore_dips: DipsFlag = False,
    jobs: JobsOption = 1,
    seed: Annotated[int, typer.Option(help="Seed of the search.")] = 0,
    store: StoreOption = None,
    json: JsonFlag = False,
) -> None:
    """Search a policy's parameters on the first 60 % of each trace, and judge on the rest whether they are any better."""
    from scaler.commands.compare import grid_of
    from scaler.commands.processes import default_store
    from scaler.commands.tune import TuneOptions, run_tune

    grid = grid_of(policy, scenarios, trace or (), windows, hours, seeds, Split.TRAIN, ignore_dips=ignore_dips)
    options = TuneOptions(
        grid=grid,
        trials=trials,
        out=out,
        fleet=fleet,
        storage=storage,
        jobs=jobs,
        seed=seed,
        store=store or default_store(),
        as_json=json,
    )
    raise typer.Exit(run_tune(options))


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


@bench.command("decide")
def bench_decide(
    policy: Annotated[str, typer.Option(help="A sizing policy's name, or all.")] = "all",
    sizes: Annotated[str, typer.Option(help="Replicas by offerings, with commas.")] = "30x15,1000x40,10000x40",
    seconds: Annotated[float, typer.Option(help="Length of each measurement; a hundred calls at least.")] = 1.0,
    json: JsonFlag = False,
) -> None:
    """How long a decision takes, beside making and sorting the views of the same replicas."""
    from scaler.commands.bench_decide import run_bench

    raise typer.Exit(run_bench(policy, sizes, seconds, as_json=json))


@bench.command("interruptions")
def bench_interruptions(
    kubeconfig: Annotated[Path, typer.Option(help="Of a test bed: `make cluster-up` tells.", envvar="KUBECONFIG")],
    endpoint_url: Annotated[str, typer.Option(help="Of the bed's AWS.", envvar="AWS_ENDPOINT_URL")],
    ledger: Annotated[str, typer.Option(help="Address of a Valkey store.", envvar="HEADRACE_LEDGER")],
    nodes: Annotated[int, typer.Option(min=1, help="Nodes, each with a notice.")] = 500,
    region: Annotated[str, typer.Option(help="The bed's region.")] = "us-east-1",
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Measure how soon after its notice a node is tainted and its worker told to drain, on a test bed."""
    from scaler.commands.bench_bed import BedAddress
    from scaler.commands.bench_interruptions import run_bench

    address = BedAddress(kubeconfig=kubeconfig, endpoint=endpoint_url, ledger=ledger, region=region)
    raise typer.Exit(run_bench(address, nodes, as_json=json))


@bench.command("loop")
def bench_loop(
    kubeconfig: Annotated[Path, typer.Option(help="Of a test bed: `make cluster-up` tells.", envvar="KUBECONFIG")],
    endpoint_url: Annotated[str, typer.Option(help="Of the bed's AWS.", envvar="AWS_ENDPOINT_URL")],
    ledger: Annotated[str, typer.Option(help="Address of a Valkey store.", envvar="HEADRACE_LEDGER")],
    nodes: Annotated[int, typer.Option(min=3, help="Nodes, each with a pod and a worker.")] = 5000,
    turns: Annotated[int, typer.Option(min=1, help="Passes of the loop to measure.")] = 100,
    interval: Annotated[str, typer.Option(help="The fleet's: between two passes.")] = "5s",
    region: Annotated[str, typer.Option(help="The bed's region.")] = "us-east-1",
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Measure what a pass of the decision loop takes over many nodes, and the controller's memory, on a test bed."""
    from scaler.commands.bench_bed import BedAddress
    from scaler.commands.bench_loop import LoopOptions, run_bench

    address = BedAddress(kubeconfig=kubeconfig, endpoint=endpoint_url, ledger=ledger, region=region)
    raise typer.Exit(run_bench(address, LoopOptions(nodes=nodes, turns=turns, interval=interval), as_json=json))


@bench.command("simulate")
def bench_simulate(
    policy: Annotated[str, typer.Option(help="Policy, by name or file.")] = "rate_match", json: JsonFlag = False
) -> None:
    """A simulated week of case A, and how its cost grows with time and with the size of the fleet."""
    from scaler.commands.bench_simulate import run_bench

    raise typer.Exit(run_bench(policy, as_json=json))


def main() -> None:
    """Console entry point."""
    app()


if __name__ == "__main__":
    main()
