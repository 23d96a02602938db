"""Is it right: drivers, oracles, comparison, search over alternatives, verdicts."""

from deinplace.verify.diagnose import diagnose
from deinplace.verify.drivers import Driver, DriverError
from deinplace.verify.mend import Options, mend

__all__ = ["Driver", "DriverError", "Options", "diagnose", "mend"]
