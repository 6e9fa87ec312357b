"""What every test shares: one Hypothesis profile, the same draws on every machine."""

import os
import signal

from hypothesis import HealthCheck, settings

# No deadline: two busy cores say nothing about the code. Derandomised in CI, so that a red run stays red.
settings.register_profile("quick", deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("quick"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "quick")

# Tests send Ctrl-C to this process; started in the background of a shell, it would ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
