"""A plugin of pytest: `reverb` is this package, before any test is imported."""

import sys
import types

import jax
import jax.numpy as jnp

import reverie

sys.modules["reverb"] = reverie

# Nothing of Acme itself is changed. It imports its launcher, whose wheels end before this Python, for a signal handler
# that no adder uses, and asks JAX for a name that is on its way out.
sys.modules["launchpad"] = types.ModuleType("launchpad")
jnp.DeviceArray = jax.Array
