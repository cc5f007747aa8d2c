"""Runs the package's own command line against a server of our choice.

The console script `intent-bus` has neither a flag nor an environment variable for the base URL:
its main() calls IntentClient() bare, and the default lives in the constructor's signature. The
package must stay unmodified, so this launcher binds the one argument the command line cannot
pass and then hands over to the package's main(). Everything else, argument parsing, output and
requests, is the package's own code.
"""

import functools
import os
import sys

import intent_bus.cli

intent_bus.cli.IntentClient = functools.partial(
    intent_bus.cli.IntentClient, base_url=os.environ["REAL_CLIENT_BASE_URL"]
)
sys.argv[0] = "intent-bus"
sys.exit(intent_bus.cli.main())
