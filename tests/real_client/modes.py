"""Marks that scenarios carry: in which signature mode they run, and how they spend their time."""


def unsigned_only(scenario):
    """For scenarios that send unsigned requests, as curl workers do."""
    scenario.modes = ("optional",)
    return scenario


def signed_only(scenario):
    """For scenarios about a server that demands signatures."""
    scenario.modes = ("required",)
    return scenario


def mostly_waits(scenario):
    """For scenarios that sleep through leases; the runner starts them first and side by side."""
    scenario.mostly_waits = True
    return scenario
