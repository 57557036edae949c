"""Creates a trial of an experiment: its system with the settings, and its world."""

from dataclasses import replace

from assay.harness.run.environments import FaultRequirements, open_world
from assay.harness.run.experiment import Experiment
from assay.harness.run.faults import select_possible_faults
from assay.harness.run.interrupt import Interrupt
from assay.harness.run.progress import Progress
from assay.harness.run.registry import Registry
from assay.harness.run.run_output import RunOutput
from assay.harness.run.settings import Settings
from assay.harness.run.systems import apply_settings, complete_contract, with_defect
from assay.harness.run.trial import Trial


def make_trial(
    experiment: Experiment,
    settings: Settings,
    keeping: RunOutput,
    registry: Registry,
    *,
    run_id: str,
    interrupt: Interrupt,
    progress: Progress,
) -> Trial:
    """Returns a trial that has not started. ``experiment`` and ``settings`` include their mixes; ``run_id`` marks
    containers.

    The contract of the trial's experiment has the limits of its system.
    """
    variant = apply_settings(with_defect(experiment.system, settings.defect), settings.configuration)
    experiment = replace(experiment, contract=complete_contract(experiment.contract, variant))
    system = experiment.deployed(variant)
    drawn = [registry.faults[name] for name in select_possible_faults(system, settings, registry.faults)]
    world = open_world(system, settings, run_id=run_id, needs=FaultRequirements.of(drawn))
    return Trial(experiment, system, settings, world, keeping, registry.faults, interrupt, progress)
