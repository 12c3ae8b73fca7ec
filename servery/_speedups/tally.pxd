"""The map of the compiled tally; see tally.pyx."""

cdef enum:
    METHODS = 9         # those that have a name, and all others
    STATUSES = 601      # up to 599, and all others
    BOUNDS = 16         # of a histogram, at most


cdef class Tally:
    cdef long long _requests[METHODS][STATUSES]
    cdef double _duration_bounds[BOUNDS]
    cdef double _size_bounds[BOUNDS]
    cdef long long _durations[BOUNDS + 1]
    cdef long long _sizes[BOUNDS + 1]
    cdef int _duration_count, _size_count
    cdef double _seconds
    cdef long long _octets

    cpdef int ended(self, bytes method, long status, double seconds, long long octets) except -1
    cpdef int switched(self, bytes method, long status) except -1
