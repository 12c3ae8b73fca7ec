"""The counts that every request adds to: the twin of `servery.metrics.tally`; read that one first.

Sums up nothing later: each request adds to tables of numbers.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from libc.string cimport memcmp

from ..metrics.tally import DURATIONS, OTHER_METHOD, SIZES, Counts, known
from ..metrics.tally import METHODS as _METHODS

cdef dict _ROWS = {method: row for row, method in enumerate(_METHODS)}
assert len(_METHODS) == METHODS - 1 and len(DURATIONS) <= BOUNDS and len(SIZES) <= BOUNDS


cdef inline int _row(bytes method) except -1:
    if PyBytes_GET_SIZE(method) == 3 and memcmp(PyBytes_AS_STRING(method), b"GET", 3) == 0:
        return 0  # it is the first of them
    found = PyDict_GetItem(_ROWS, method)
    return METHODS - 1 if found is NULL else <object>found


cdef inline int _place(const double *bounds, int count, double value) noexcept:
    """As `bisect.bisect_left` says it."""
    cdef int place = 0
    while place < count and bounds[place] < value:
        place += 1
    return place


@cython.final
cdef class Tally:
    """See `servery.metrics.tally.RequestTally`."""

    def __init__(self):
        self._duration_count, self._size_count = len(DURATIONS), len(SIZES)
        for place, bound in enumerate(DURATIONS):
            self._duration_bounds[<int>place] = bound
        for place, bound in enumerate(SIZES):
            self._size_bounds[<int>place] = bound

    cpdef int ended(self, bytes method, long status, double seconds, long long octets) except -1:
        self.switched(method, status)
        self._durations[_place(self._duration_bounds, self._duration_count, seconds)] += 1
        self._seconds += seconds
        self._sizes[_place(self._size_bounds, self._size_count, <double>octets)] += 1
        self._octets += octets
        return 0

    cpdef int switched(self, bytes method, long status) except -1:
        self._requests[_row(method)][status if 0 <= status < STATUSES - 1 else STATUSES - 1] += 1
        return 0

    def counts(self):
        """See the reference."""
        cdef int row, status
        requests = {}
        methods = (*_METHODS, OTHER_METHOD)
        for row in range(METHODS):
            for status in range(STATUSES):
                if self._requests[row][status]:
                    labels = known(methods[row], status)
                    requests[labels] = requests.get(labels, 0) + self._requests[row][status]
        durations = [self._durations[row] for row in range(self._duration_count + 1)]
        sizes = [self._sizes[row] for row in range(self._size_count + 1)]
        return Counts(requests, durations, self._seconds, sizes, self._octets)
