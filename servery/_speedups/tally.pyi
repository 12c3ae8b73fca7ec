"""What the compiled module offers: to its callers its class is the reference's."""

from ..metrics.tally import Tally as Tally
