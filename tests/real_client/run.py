"""Runs the unmodified intent-bus 2.1.2 package, its CLI and curl workers against a real server.

Every scenario gets its own server process and data directory and runs once per signature mode,
and with --postgres all of that again over PostgreSQL, a database for each.
Output is one `test <name> ... ok|FAILED` line per scenario and a closing count; failures explain
themselves on stderr and make the exit code 1.
"""

import argparse
import concurrent.futures
import importlib
import logging
import os
import pathlib
import sys
import threading
import traceback

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE_VERSION = "2.1.2"
NAME_PREFIXES = ("real_client_", "curl_worker_")

# Waiting scenarios sleep through leases and cost nothing; the others are bound by the processor.
WAITING_AT_ONCE = 12
WORKING_AT_ONCE = 3

# The suite runs inside a source tree and must leave nothing behind in it.
sys.dont_write_bytecode = True

print_lock = threading.Lock()


def main():
    arguments = parse_arguments()
    # A proxy meant for the outside world would swallow requests to the loopback address.
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]
    logging.getLogger("intent_bus").addHandler(logging.NullHandler())
    logging.getLogger("intent_bus").propagate = False

    tests = select(discover(arguments.postgres), arguments.only)
    if arguments.list:
        for name, *_ in tests:
            print(name)
        return 0
    if not tests:
        print(f"no test is called {arguments.only!r}; see --list", file=sys.stderr)
        return 2

    outcomes = run_all(tests, str(pathlib.Path(arguments.consign).resolve()))
    passed = sum(outcomes)
    print(f"{passed} passed, {len(outcomes) - passed} failed")
    return 0 if all(outcomes) else 1


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--consign", metavar="PATH", help="the server binary")
    parser.add_argument(
        "--postgres", metavar="PATH", help="the testkit's test_postgres: run all on PostgreSQL too"
    )
    parser.add_argument("--only", metavar="NAME", default="", help="one name, or a part of names")
    parser.add_argument("--list", action="store_true", help="print the test names and stop")
    arguments = parser.parse_args()
    if not arguments.list and not arguments.consign:
        parser.error("--consign is needed to run tests")
    return arguments


def discover(test_postgres):
    """All (name, scenario, signatures required, test_postgres) in file order, SQLite first."""
    require_package()
    scenarios = []
    for path in sorted(HERE.glob("scenarios_*.py")):
        module = importlib.import_module(path.stem)
        scenarios += [
            value
            for name, value in vars(module).items()
            if name.startswith(NAME_PREFIXES) and callable(value)
        ]
    stores = [("", None)]
    if test_postgres:
        stores.append(("postgres_", str(pathlib.Path(test_postgres).resolve())))
    tests = []
    for store, program in stores:
        for mode, prefix in (("optional", ""), ("required", "signed_")):
            for scenario in scenarios:
                if mode in getattr(scenario, "modes", ("optional", "required")):
                    name = store + prefix + scenario.__name__
                    tests.append((name, scenario, mode == "required", program))
    return tests


def select(tests, wanted):
    """A full name selects that test alone; anything else selects the names that contain it."""
    exact = [test for test in tests if test[0] == wanted]
    return exact or [test for test in tests if wanted in test[0]]


def require_package():
    try:
        found = importlib.import_module("intent_bus").__version__
    except ImportError:
        found = "none"
    if found != PACKAGE_VERSION:
        sys.exit(
            f"this suite needs intent-bus {PACKAGE_VERSION}, found {found}; "
            "install requirements.txt into a virtual environment and use its python"
        )


def run_all(tests, binary):
    waiting = [test for test in tests if getattr(test[1], "mostly_waits", False)]
    working = [test for test in tests if test not in waiting]
    with (
        concurrent.futures.ThreadPoolExecutor(WAITING_AT_ONCE) as waiting_pool,
        concurrent.futures.ThreadPoolExecutor(WORKING_AT_ONCE) as working_pool,
    ):
        futures = [waiting_pool.submit(run_one, binary, *test) for test in waiting]
        futures += [working_pool.submit(run_one, binary, *test) for test in working]
        return [future.result() for future in futures]


def run_one(binary, name, scenario, signatures_required, test_postgres):
    from bus import Bus
    from server import Server

    server = Server(binary, signatures_required, test_postgres)
    failure = None
    try:
        server.start()
        bus = Bus(server)
        try:
            scenario(bus)
            # The clients' connections are still open here, which a clean stop must cope with.
            server.terminate()
        finally:
            bus.close()
    except Exception:
        failure = traceback.format_exc()
    finally:
        server.discard()

    with print_lock:
        print(f"test {name} ... {'FAILED' if failure else 'ok'}", flush=True)
        if failure:
            print(f"--- {name}\n{failure}last lines of the server:", file=sys.stderr)
            print("\n".join(f"  {line}" for line in server.output), file=sys.stderr, flush=True)
    return failure is None


if __name__ == "__main__":
    sys.exit(main())
