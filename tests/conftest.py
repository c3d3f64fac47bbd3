"""Hypothesis profiles: `ci` by default, many more examples with `nightly`.

pytest --hypothesis-profile=nightly          or          HYPOTHESIS_PROFILE=nightly pytest
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci", max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("nightly", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
