"""All planted bugs."""

from tests.faults.bugs_in_the_controller import BUGS_IN_THE_CONTROLLER
from tests.faults.bugs_in_the_work import BUGS_IN_THE_WORK
from tests.faults.planting import PlantedBug

BUGS: dict[str, PlantedBug] = BUGS_IN_THE_WORK.by_name | BUGS_IN_THE_CONTROLLER.by_name
