"""A second opinion on the bound: from the JSON alone, as `FORMAT.md` describes it, in one linear program of its own making.

It shares nothing with the package: variables are names, rows are dictionaries, and the ratio is made linear by dividing
everything by what is credited (Charnes and Cooper, 1962), so that z = 1000 / credited.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import highspy

Terms = dict[Any, float]
Json = dict[str, Any]


class Rows:
    """min cost @ x with rows <= 0; every constant is a coefficient of z."""

    def __init__(self) -> None:
        self.names: dict[Any, int] = {}
        self.cost: Terms = defaultdict(float)
        self.rows: list[Terms] = []

    def most(self, terms: Terms, constant: float) -> None:
        """sum(terms) <= constant."""
        row: Terms = defaultdict(float)
        for name, value in terms.items():
            row[name] += value
        row["z"] -= constant
        self.rows.append(row)

    def least_cost(self) -> float:
        """With `credited` = 1000."""
        solver = highspy.Highs()  # type: ignore[no-untyped-call]
        solver.silent()
        for row in (*self.rows, self.cost):
            for name in row:
                if name not in self.names:
                    self.names[name] = solver.numVariables
                    solver.addVar(0.0, highspy.kHighsInf)
        for row in self.rows:
            index = [self.names[name] for name in row]
            solver.addRow(-highspy.kHighsInf, 0.0, len(row), index, list(row.values()))
        solver.addRow(1000.0, 1000.0, 1, [self.names["credited"]], [1.0])
        for name, value in self.cost.items():
            solver.changeColCost(self.names[name], value)
        solver.run()
        assert solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
        return float(solver.getInfo().objective_function_value)


def least_usd_per_1k_samples(problem: Json) -> float:
    """The least ratio of the problem."""
    rows = Rows()
    edges = problem["edges_s"]
    steps = range(len(edges) - 1)
    lasts = [edges[k + 1] - edges[k] for k in steps]
    rows.cost["z"] = problem["trainer_usd_per_h"] * edges[-1] / 3600
    for o, offering in enumerate(problem["offerings"]):
        _offering(rows, problem, o, offering)
    stock, rate = problem["stock"], problem["demand_samples_per_s"]
    for k in steps:
        ready = [("R", o, k) for o in range(len(problem["offerings"]))]
        ready += [(kind, o, k) for kind in ("T", "FR") for o in range(len(problem["offerings"]))]
        made = dict.fromkeys(ready, -problem["goodput_samples_per_s"] * lasts[k])
        before: Terms = {("S", k - 1): -1.0} if k else {"start": -1.0}
        rows.most({("S", k): 1.0, ("W", k): 1.0, **before, **made}, 0.0 if k else stock["slack"])
        rows.most(dict.fromkeys(ready, 1.0), problem["useful_replicas"])
        rows.most({("W", k): 1.0}, rate * lasts[k])
        rows.most({("S", k): 1.0}, max(stock["most"], stock["start_most"] + stock["slack"]))
    rows.most({"start": 1.0}, stock["start_most"])
    rows.most({"start": -1.0}, -stock["start_least"])
    worked = {("W", k): -1.0 for k in steps}
    rows.most({"credited": 1.0}, problem["credit_most_samples"])
    rows.most({"credited": 1.0, **worked}, problem["credit_ahead_samples"])
    rows.most({"credited": 1.0, **worked, ("S", steps[-1]): -1.0, "start": 1.0}, 0.0)
    _limits(rows, problem)
    if problem["draws"]:
        for o, offering in enumerate(problem["offerings"]):
            _draws(rows, problem, o, offering)
    return rows.least_cost()


def _offering(rows: Rows, problem: Json, o: int, offering: Json) -> None:
    edges, launch_s = problem["edges_s"], problem["launch_s"]
    steps = range(len(edges) - 1)
    minimum_s, refund_s = offering["minimum_s"], offering["unforeseen_refund_s"]
    for k in steps:
        for j in range(k + 1):
            if edges[k] - edges[j] <= launch_s + 1e-9 and edges[k + 1] - edges[j + 1] <= launch_s + 1e-9:
                rows.most({("R", o, k): 1.0, ("H", o, j): -1.0}, 0.0)
                rows.most({("FR", o, k): 1.0, ("FH", o, j): -1.0}, 0.0)
        free = 1.0 if refund_s else 0.0
        rows.most({("FR", o, k): 1.0}, free * offering["ready_most"][k])
        rows.most({("FH", o, k): 1.0}, free * offering["held_most"][k])
        held = _lives(problem, o, offering, k, held=True)
        rows.most({("H", o, k): 1.0, ("FH", o, k): 1.0, **held}, offering["held_most"][k])
        rows.most({("R", o, k): 1.0, ("T", o, k): 1.0, ("FR", o, k): 1.0}, offering["ready_most"][k])
        ready = _lives(problem, o, offering, k, held=False)
        rows.most({("T", o, k): 1.0, **{name: -share for name, share in ready.items()}}, 0.0)
        usd = offering["usd_per_h"] * (edges[k + 1] - edges[k]) / 3600
        rows.cost["P" if minimum_s else "H", o, k] = usd
    for f, fall in enumerate(offering["falls"]):
        rows.most({("V", o, f, i): 1.0 for i in range(len(fall["lives"]))}, fall["most_replicas"])
    if refund_s:
        ratio = max(0.0, 1 - launch_s / refund_s)
        lasts = {k: edges[k + 1] - edges[k] for k in steps}
        ready = {("FR", o, k): lasts[k] for k in steps}
        rows.most({**ready, **{("FH", o, k): -ratio * lasts[k] for k in steps}}, 0.0)
    if minimum_s:
        _minimum(rows, edges, o, offering)


def _minimum(rows: Rows, edges: list[float], o: int, offering: Json) -> None:
    minimum_s = offering["minimum_s"]
    for k in range(len(edges) - 1):
        rows.most({("H", o, k): 1.0, ("P", o, k): -1.0}, 0.0)
        before = {("P", o, k - 1): -1.0} if k else {}
        rows.most({("P", o, k): 1.0, ("G", o, k): -1.0, **before}, 0.0 if k else offering["warm_replicas"])
        late: Terms = {}
        for j in range(k, -1, -1):
            if edges[j] + minimum_s < edges[k + 1] or (j and edges[j - 1] + minimum_s < edges[k]):
                break
            late["G", o, j] = 1.0
        rows.most({("P", o, k): -1.0, **late}, 0.0)


def _lives(problem: Json, o: int, offering: Json, k: int, *, held: bool) -> Terms:
    begins_s, ends_s = problem["edges_s"][k], problem["edges_s"][k + 1]
    shares: Terms = {}
    for f, fall in enumerate(offering["falls"]):
        for i, life in enumerate(fall["lives"]):
            from_s = life["granted_s"] if held else life["ready_from_s"]
            to_s = fall["at_s"] if held else life["ready_to_s"]
            inside_s = _there_s(problem, fall, life, max(from_s, begins_s), min(to_s, ends_s))
            if inside_s > 0:
                shares["V", o, f, i] = inside_s / (ends_s - begins_s)
    return shares


def _there_s(problem: Json, fall: Json, life: Json, from_s: float, to_s: float) -> float:
    """Time between two moments, of a life that fades by the share that is still there."""
    if not life["fades"] or to_s <= fall["at_s"]:
        return float(to_s - from_s)
    total: float = max(0.0, fall["at_s"] - from_s)
    ages, shares = problem["draws"]["stays_from_s"], problem["draws"]["stays"]
    for age_s, until_s, share in zip(ages, ages[1:], shares, strict=False):
        total += share * max(0.0, min(fall["at_s"] + until_s, to_s) - max(fall["at_s"] + age_s, from_s))
    return total


def _limits(rows: Rows, problem: Json) -> None:
    if not problem["limits"]:
        return
    for limit in problem["limits"]:
        for k, most in enumerate(limit["mean_most"]):
            held: Terms = {}
            for o, (weight, offering) in enumerate(zip(limit["weights"], problem["offerings"], strict=True)):
                shares = {("H", o, k): 1.0, **_lives(problem, o, offering, k, held=True)}
                held.update({name: weight * share for name, share in shares.items()})
            rows.most(held, most)
        for t, most in enumerate(limit["falls_most"]):
            rows.most({("I", o, t): weight for o, weight in enumerate(limit["weights"])}, most)
    for o in range(len(problem["offerings"])):
        for t, at_s in enumerate(problem["instants_s"]):
            _instant(rows, problem, ("I", o, t), at_s)


def _instant(rows: Rows, problem: Json, instant: tuple[str, int, int], at_s: float) -> None:
    edges, o = problem["edges_s"], instant[1]
    falls = problem["offerings"][o]["falls"]
    alive = {
        ("V", o, f, i): 1.0
        for f, fall in enumerate(falls)
        for i, life in enumerate(fall["lives"])
        if life["granted_s"] < at_s <= fall["at_s"]
    }
    latest_s = at_s + problem["launch_s"] + 1e-9
    soon = [k for k in range(len(edges) - 1) if at_s <= edges[k] and edges[k + 1] <= latest_s]
    for also in [{("R", o, k): 1.0} for k in soon] or [{}]:
        rows.most({**alive, **also, instant: -1.0}, 0.0)
    for f, fall in enumerate(falls):
        if fall["at_s"] == at_s:
            share = 1 + fall["stays"] / fall["most_replicas"]
            rows.most({**{("V", o, f, i): share for i in range(len(fall["lives"]))}, instant: -1.0}, 0.0)


def _draws(rows: Rows, problem: Json, o: int, offering: Json) -> None:
    edges, draws = problem["edges_s"], problem["draws"]
    for k in range(len(edges) - 1):
        stays = _stays(problem, offering, k, lambda fall, life: life["ready_to_s"])
        there = {("V", o, *which): -share for which, share in stays.items()}
        rows.most({("present", o, k): 1.0, ("H", o, k): -1.0, ("FH", o, k): -1.0, **there}, 0.0)
        rows.most({("present", o, k): 1.0}, offering["held_most"][k])
        young: Terms = {}
        for e in range(k, -1, -1):
            blind_s = draws["blind_s"] + 1e-9
            if edges[e] + blind_s < edges[k + 1] or (e and edges[e - 1] + blind_s < edges[k]):
                break
            young["made", o, e] = 1.0
        rows.most({**young, **_r(o, k, 1.0), ("present", o, k): -1.0}, 0.0)
        paid = {("Q", o, *w): s for w, s in _stays(problem, offering, k, lambda fall, life: fall["at_s"]).items()}
        paid = {name: s for name, s in paid.items() if offering["falls"][name[2]]["stays"]}
        rows.most({**paid, ("H", o, k): -1.0}, 0.0)
    for late in draws["late"]:
        _look_back(rows, problem, o, offering, late)
    for f, fall in enumerate(offering["falls"]):
        for i, life in enumerate(fall["lives"]):
            _keep(rows, o, offering, (f, i), life["granted_s"])


def _r(o: int, k: int, factor: float) -> Terms:
    return {(kind, o, k): factor for kind in ("R", "T", "FR")}


def _stays(problem: Json, offering: Json, k: int, until_s: Callable[[Json, Json], float]) -> Terms:
    begins_s, ends_s = problem["edges_s"][k], problem["edges_s"][k + 1]
    inside_s = {
        (f, i): _there_s(problem, fall, life, max(life["granted_s"], begins_s), min(until_s(fall, life), ends_s))
        for f, fall in enumerate(offering["falls"])
        for i, life in enumerate(fall["lives"])
    }
    return {which: time_s / (ends_s - begins_s) for which, time_s in inside_s.items() if time_s > 0}


def _look_back(rows: Rows, problem: Json, o: int, offering: Json, late: Json) -> None:
    k, j = late["step"], late["earlier"]
    before, warm = ({("present", o, j): -1.0}, 0.0) if j >= 0 else ({}, offering["warm_replicas"])
    made = {("made", o, e): -w for e, w in zip(late["edges"], late["weights"], strict=True)}
    rows.most({**_r(o, k, 1.0), **before, **made}, warm)
    least_s = problem["draws"]["least_unready_s"]
    if not least_s:
        return
    spent: Terms = defaultdict(float)
    for i in range(max(j, 0), k + 1):
        share = (problem["edges_s"][i + 1] - problem["edges_s"][i]) / least_s
        for name, value in {("present", o, i): -share, **_r(o, i, share)}.items():
            spent[name] += value
    for name, value in {**_r(o, k, 1.0), **before}.items():
        spent[name] += value
    rows.most(spent, warm)


def _keep(rows: Rows, o: int, offering: Json, which: tuple[int, int], granted_s: float) -> None:
    fall = offering["falls"][which[0]]
    if not fall["stays"]:
        return
    share = fall["most_replicas"] / (fall["most_replicas"] + fall["stays"])
    alive: Terms = defaultdict(float)
    for f, later in enumerate(offering["falls"]):
        for i, life in enumerate(later["lives"]):
            if f >= which[0] and life["granted_s"] == granted_s:
                alive["V", o, f, i] -= share
                if later["stays"]:
                    alive["Q", o, f, i] -= share
    alive["V", o, *which] += 1.0
    rows.most(alive, 0.0)
