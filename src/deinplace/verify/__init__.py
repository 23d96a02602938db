"""Is it right: drivers, oracles, comparison, search over alternatives, verdicts."""

from deinplace.verify.diagnose import diagnose
from deinplace.verify.drivers import Driver, DriverError
from deinplace.verify.harness.ladder import Asked, mend_unasked
from deinplace.verify.mend import Options, mend

__all__ = ["Asked", "Driver", "DriverError", "Options", "diagnose", "mend", "mend_unasked"]
