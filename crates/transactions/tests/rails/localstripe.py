# Runs localstripe with a state file of its own, where it would share one with every other on the machine.
import builtins
import sys

from localstripe import resources, server

state = sys.argv.pop(1)
resources.open = lambda _, mode: builtins.open(state, mode)
server.start()
