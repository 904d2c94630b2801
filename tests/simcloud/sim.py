"""SimCloud: one region of one account, as the controller sees it.

Policy: a passive, seeded state machine behind one lock. `call` is what the HTTP front end and tests in process use alike;
the methods beside it are the hand of fate. Every call first does what has become due on the injected clock.
Invariants: every call and every end of an instance is in `log`; nothing is ended without a name for who did it.
Non-goals: IAM, networking, volumes, billing. Where a behaviour is from AWS's documentation its module says so.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from botocore import xform_name

from scaler.model.clock import Clock
from tests.simcloud import instances as ec2
from tests.simcloud.activities import Activities, result_detail
from tests.simcloud.asked import Asked, Json
from tests.simcloud.autoscaling_groups import AutoScalingGroups
from tests.simcloud.autoscaling_members import AutoScalingMembers
from tests.simcloud.autoscaling_records import AutoScalingRecords, queue_name
from tests.simcloud.bus import STATE_CHANGE, Bus
from tests.simcloud.ec2_facts import Ec2Facts, Templates
from tests.simcloud.ec2_instances import Ec2Instances
from tests.simcloud.eks import Eks
from tests.simcloud.errors import CloudError, ConnectionDropped
from tests.simcloud.fate import Fate
from tests.simcloud.faults import Faults, Trouble
from tests.simcloud.groups import LAUNCHING, Activity, Group, Groups, Member, Wait
from tests.simcloud.hooks import HookWaits
from tests.simcloud.instances import Instance, Instances
from tests.simcloud.journal import BY_CALLERS, Call, Ended, Journal
from tests.simcloud.keeper import Keeper
from tests.simcloud.kernel import Kernel
from tests.simcloud.market import Market
from tests.simcloud.notifications import action_detail, action_notification
from tests.simcloud.queues import Queues
from tests.simcloud.reservations import Reservations
from tests.simcloud.settings import Settings
from tests.simcloud.sqs import Sqs
from tests.simcloud.starting import Starter


class SimCloud:
    """See the module's docstring."""

    def __init__(self, clock: Clock, seed: int = 0, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.kernel = Kernel(clock, seed)
        self.log = Journal()
        self.market = Market(self.kernel, self.settings)
        self.instances = Instances(self.kernel, self.settings, self.market, self.log)
        self.queues = Queues(self.kernel, self.settings)
        self.bus = Bus(self.kernel, self.settings, self.queues)
        self.faults = Faults(self.kernel)
        self.templates = Templates(self.kernel)
        self.groups = Groups(self.kernel)
        self.activities = Activities(self.kernel, self._tell_result)
        self.hooks = HookWaits(self.kernel, self._tell_wait)
        starter = Starter(self.kernel, self.market, self.instances, self.templates, self.activities)
        self.keeper = Keeper(
            self.kernel, self.settings, self.groups, self.instances, starter, self.hooks, self.activities
        )
        self.reservations = Reservations(self.kernel, self.settings, self.market, self.instances, self.bus)
        self.fate = Fate(self.kernel, self.settings, self.instances, self.bus, self.keeper, self.reservations)
        self.instances.listeners.append(self._tell_state)
        self.sqs = Sqs(self.queues)
        self.eks = Eks(self.kernel, self.settings, self.groups, self.keeper, self.templates, self.hooks)
        self._ec2_instances = Ec2Instances(self.kernel, self.settings, self.instances)
        self._groups_api = AutoScalingGroups(self.kernel, self.settings, self.groups, self.keeper, self.instances)
        self._services = self._offer(starter)
        self._states: dict[str, str] = {}

    def _offer(self, starter: Starter) -> dict[str, tuple[object, ...]]:
        facts = Ec2Facts(self.kernel, self.settings, self.market, self.instances, self.templates)
        members = AutoScalingMembers(
            self.kernel,
            self.settings,
            self.groups,
            self.keeper,
            starter,
            self.hooks,
            self.activities,
            self.instances,
        )
        records = AutoScalingRecords(self.kernel, self.settings, self.groups, self.bus)
        return {
            "ec2": (self._ec2_instances, facts, self.reservations),
            "autoscaling": (self._groups_api, members, records),
            "eks": (self.eks,),
            "sqs": (self.sqs,),
        }

    def call(self, service: str, operation: str, /, *, caller: str = "test", **parameters: Any) -> Json:
        """One API call, with the trouble it is due; delays apart.

        Raises:
            CloudError: as AWS would.
            ConnectionDropped: by script.
        """
        trouble = self.trouble(service, operation)
        if trouble.drop_before:
            raise ConnectionDropped(carried_out=False)
        answer = self.perform(service, operation, parameters, caller, trouble)
        if trouble.drop_after:
            raise ConnectionDropped(carried_out=True)
        return answer

    def trouble(self, service: str, operation: str) -> Trouble:
        """What is scripted for this call: the front end has to see to delays and drops."""
        with self.kernel.lock:
            self.advance()
            return self.faults.of(service, operation)

    def perform(
        self, service: str, operation: str, parameters: Mapping[str, Any], caller: str, trouble: Trouble
    ) -> Json:
        """Do it, and write it down."""
        with self.kernel.lock:
            self.advance()
            error = ""
            try:
                if trouble.error is not None:
                    raise trouble.error
                return self._handler(service, operation)(Asked(parameters, caller))
            except CloudError as refused:
                error = refused.code
                raise
            finally:
                self._groups_api.note()
                self.log.calls.append(
                    Call(
                        at_s=self.kernel.now_s(),
                        caller=caller,
                        service=service,
                        operation=operation,
                        parameters=parameters,
                        error=error,
                    )
                )

    def _handler(self, service: str, operation: str) -> Callable[[Asked], Json]:
        name = xform_name(operation)
        for part in self._services.get(service, ()):
            handler: Callable[[Asked], Json] | None = getattr(part, name, None)
            if handler is not None:
                return handler
        raise CloudError("InvalidAction", f"SimCloud does not play {service} {operation}")

    def advance(self) -> None:
        """Do what has become due."""
        with self.kernel.lock:
            self.kernel.advance()
            self._groups_api.note()

    def request_id(self) -> str:
        """A new one."""
        with self.kernel.lock:
            return self.kernel.uuid()

    def set_describe_lag(self, seconds: float) -> None:
        """Describe calls see the world up to so much earlier."""
        with self.kernel.lock:
            self.advance()
            self.settings.describe_lag_s = seconds
            self._ec2_instances.views.begin(self._ec2_instances.current())
            self._groups_api.views.begin(self._groups_api.current())

    def fail_next(
        self, operation: str, code: str, times: int = 1, *, message: str = "scripted", status: int | None = None
    ) -> None:
        """The next calls of it are refused with this code."""
        self.faults.script(operation, Trouble(error=CloudError(code, message, status=status)), times)

    def slow_next(self, operation: str, delay_s: float, times: int = 1) -> None:
        """The next calls of it are answered late (over HTTP)."""
        self.faults.script(operation, Trouble(delay_s=delay_s), times)

    def drop_next(self, operation: str, times: int = 1, *, carried_out: bool = True) -> None:
        """The connection of the next calls of it breaks, after or before they are carried out."""
        self.faults.script(operation, Trouble(drop_after=carried_out, drop_before=not carried_out), times)

    def contend(self, group: str, seconds: float) -> None:
        """Calls that change the group meet ResourceContention for so long."""
        with self.kernel.lock:
            self.groups.get(group).contended_until_s = self.kernel.now_s() + seconds

    def running(self, group: str | None = None) -> list[Instance]:
        """Instances pending or running, of a group if one is named."""
        with self.kernel.lock:
            self.advance()
            return [one for one in self.instances.alive() if group is None or one.group == group]

    def ended(self, instance_ids: Iterable[str] | None = None) -> list[Ended]:
        """How instances ended, in order."""
        self.advance()
        wanted = None if instance_ids is None else set(instance_ids)
        return [one for one in self.log.ended if wanted is None or one.instance_id in wanted]

    def ended_by_us(self) -> list[Ended]:
        """Those that ended because somebody called for it: named, or chosen by a group that was lowered."""
        return [one for one in self.ended() if one.by in BY_CALLERS]

    def _tell_state(self, one: Instance) -> None:
        if self._states.get(one.instance_id) == one.state:
            return
        self._states[one.instance_id] = one.state
        self.bus.about_instance(STATE_CHANGE, one.instance_id, state=one.state)
        if one.state == ec2.TERMINATED:
            del self._states[one.instance_id]

    def _tell_result(self, kind: str, group: Group, one: Activity, instance_id: str) -> None:
        arns = [group.arn]
        if instance_id:
            arns.append(f"arn:aws:ec2:{self.settings.region}:{self.settings.account}:instance/{instance_id}")
        self.bus.emit(kind, "aws.autoscaling", arns, result_detail(group, one, instance_id, self.kernel.uuid()))

    def _tell_wait(self, group: Group, member: Member, wait: Wait) -> None:
        detail = action_detail(group, member, wait)
        if wait.hook.target_arn:
            body = action_notification(self.kernel, self.settings, detail)
            self.bus.deliver(queue_name(wait.hook.target_arn), body)
        verb = "launch" if wait.hook.transition == LAUNCHING else "terminate"
        self.bus.emit(f"EC2 Instance-{verb} Lifecycle Action", "aws.autoscaling", [group.arn], detail)
        self.eks.told(group, member, wait)
