"""NVIDIA's Xids: what each says of the GPU, and what to do.

From NVIDIA's Xid catalogue (SOURCE, read 2026-11-23). ERROR: its action is to reset the GPU or restart the machine, and
the cause lies in the GPU, its memory or its links. INFO: its action is to ignore it, or only to restart the program.
WARNING: a sign of wear, or of a fault that may lie in the program or in the GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from trainbench.core.verdicts import Level

SOURCE = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"


class Xid(NamedTuple):
    level: Level
    meaning: str  # "the GPU has ..." or "an uncorrectable ...": continues "Xid 79: "
    next_step: str


RESET = "drain the node and reset the GPU; if it comes again, have the GPU exchanged"
RESTART = (
    "drain the node and restart the machine; if it comes again, look at slot, riser and power, then exchange the GPU"
)
DIAGNOSE = "drain the node, run dcgmi diag -r 3 on it, and compare driver and firmware with its peers'"
LINK = "drain the node, look at the link with nvidia-smi nvlink -e, and reset the GPUs of both ends"
PROGRAM = "read the run's log; if the same run works on other nodes, run dcgmi diag -r 3 on this one"
NOTHING = "nothing by itself: read the Xids beside it and the run's log"
WATCH = "reset the GPU at the next chance, and exchange it if the count grows"

XIDS: Mapping[int, Xid] = {
    11: Xid(Level.INFO, "the program sent the GPU an invalid command", PROGRAM),
    13: Xid(Level.WARNING, "an exception in the GPU's units, mostly an address out of range in the program", PROGRAM),
    25: Xid(Level.INFO, "the program sent the GPU an invalid command", PROGRAM),
    31: Xid(Level.WARNING, "a page fault in GPU memory, mostly an illegal address in the program", PROGRAM),
    32: Xid(Level.WARNING, "commands came damaged over the PCIe link", "look at the PCIe link, slot and riser"),
    38: Xid(Level.WARNING, "the GPU's firmware did not answer in time", DIAGNOSE),
    39: Xid(Level.WARNING, "an exception in a copy engine", DIAGNOSE),
    40: Xid(Level.WARNING, "an exception in a copy engine", DIAGNOSE),
    41: Xid(Level.WARNING, "an exception in a copy engine", DIAGNOSE),
    43: Xid(Level.INFO, "the GPU stopped a program after a fault of that program", PROGRAM),
    44: Xid(Level.WARNING, "a fault while the GPU switched between programs", DIAGNOSE),
    45: Xid(Level.INFO, "the driver cleaned up after a program that ended early", NOTHING),
    46: Xid(Level.ERROR, "the GPU stopped processing", RESET),
    48: Xid(Level.ERROR, "an uncorrectable error in the GPU's memory", RESET),
    54: Xid(Level.ERROR, "the board's power cable is not connected", "connect the GPU's auxiliary power"),
    61: Xid(Level.WARNING, "the GPU's power controller stopped at a breakpoint", DIAGNOSE),
    62: Xid(Level.ERROR, "the GPU's power controller halted", RESET),
    63: Xid(Level.WARNING, "a faulty row of the GPU's memory was replaced by a spare one", WATCH),
    64: Xid(Level.ERROR, "a faulty row of the GPU's memory could not be replaced", RESET),
    66: Xid(Level.INFO, "the driver made an access that the GPU refused", NOTHING),
    68: Xid(Level.WARNING, "an exception in the video decoder", DIAGNOSE),
    69: Xid(Level.WARNING, "the GPU refused a command of the program", PROGRAM),
    74: Xid(Level.ERROR, "an NVLink to another GPU or a switch failed", LINK),
    79: Xid(Level.ERROR, "the GPU has fallen off the bus", RESTART),
    80: Xid(Level.WARNING, "damaged data were sent to the GPU", "look at the PCIe link, slot and riser"),
    92: Xid(Level.WARNING, "many corrected errors in the GPU's memory", WATCH),
    94: Xid(Level.WARNING, "an uncorrectable error in the GPU's memory, which one program had to itself", WATCH),
    95: Xid(Level.ERROR, "an uncorrectable error in the GPU's memory, which no program had to itself", RESET),
    109: Xid(Level.ERROR, "the GPU did not switch between programs in time", RESET),
    110: Xid(Level.ERROR, "a security fault, rare without a hardware fault", RESTART),
    119: Xid(Level.ERROR, "the GPU's system processor did not answer in time", RESET),
    120: Xid(Level.ERROR, "an error in the GPU's system processor", RESET),
    121: Xid(Level.INFO, "corrected errors on the link to the Grace CPU", "reset the GPU at the next chance"),
    136: Xid(Level.ERROR, "a link's training failed", LINK),
    137: Xid(Level.WARNING, "an illegal access over NVLink, mostly by the program", PROGRAM),
    140: Xid(Level.ERROR, "an uncorrectable memory error that the driver could not set aside", RESET),
    141: Xid(Level.INFO, "an error in a shortcut of CUDA", NOTHING),
    143: Xid(Level.ERROR, "the GPU could not be initialised", RESET),
    **{
        code: Xid(Level.WARNING, f"an error of an NVLink 5 unit ({unit})", LINK)
        for code, unit in enumerate(("SAW", "RLW", "TLW", "TREX", "NVLPW_CTRL", "NETIR", "MSE"), start=144)
    },
    154: Xid(Level.INFO, "the driver's advice on how to recover changed", NOTHING),
    155: Xid(Level.WARNING, "an NVLink went down", LINK),
    156: Xid(Level.WARNING, "a faulty unit of the GPU was set aside", WATCH),
    157: Xid(Level.ERROR, "a faulty unit of the GPU could not be set aside", RESET),
    158: Xid(Level.ERROR, "the GPU did not answer in time, and could not go on", RESET),
    167: Xid(Level.ERROR, "the PCIe link did not answer in time, and could not go on", RESTART),
    171: Xid(Level.ERROR, "an uncorrectable error in the GPU's DRAM", RESET),
    172: Xid(Level.ERROR, "an uncorrectable error in the GPU's SRAM", RESET),
}


def xid(code: int) -> Xid:
    """The table's row, or a warning that names NVIDIA's catalogue."""
    return XIDS.get(code) or Xid(Level.WARNING, "not in this version's table", f"look it up at {SOURCE}")
