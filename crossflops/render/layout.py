"""Which page a noun gets."""

from typing import TypeAlias

from msgspec import UNSET

from crossflops.core.convention import Cause, Convention
from crossflops.core.device import Derivation, DeviceList, DeviceSheet
from crossflops.core.efficiency import EfficiencyReport
from crossflops.core.machine import Machine
from crossflops.core.report import Report
from crossflops.render.against import compared_page
from crossflops.render.bench import Benched, bench_page
from crossflops.render.cause import Matches, cause_page, matches_page
from crossflops.render.convention import convention_page
from crossflops.render.devices import derivation_page, device_page, devices_page
from crossflops.render.efficiency import efficiency_page
from crossflops.render.inventory import Health, Inventory, health, inventory
from crossflops.render.machine import machine_page
from crossflops.render.page import Page
from crossflops.render.places import Compared
from crossflops.render.summary import Unit, summary
from crossflops.render.view import Viewed, view_page

Noun: TypeAlias = (
    Report
    | Viewed
    | Compared
    | Cause
    | Matches
    | Convention
    | Inventory
    | Health
    | EfficiencyReport
    | Benched
    | DeviceSheet
    | DeviceList
    | Derivation
    | Machine
    | Page
)


def layout(noun: Noun, unit: Unit = "macs") -> Page:
    """The page of a noun, with counts ordered by `unit` where it has any."""
    match noun:
        case Page():
            return noun
        case Cause():
            return cause_page(noun)
        case Matches():
            return matches_page(noun)
        case Convention():
            return convention_page(noun)
        case Inventory():
            return inventory(noun)
        case Health():
            return health(noun)
        case Benched():
            return bench_page(noun.bench, noun.top)
        case DeviceSheet():
            return device_page(noun)
        case DeviceList():
            return devices_page(noun)
        case Derivation():
            return derivation_page(noun)
        case Machine():
            return machine_page(noun)
        case EfficiencyReport():
            return efficiency_page(noun)
        case Viewed():
            return view_page(noun)
        case Compared():
            return compared_page(noun.report, unit, noun.top)
        case Report():
            return summary(noun, unit) if noun.profiles is UNSET else compared_page(noun, unit)
