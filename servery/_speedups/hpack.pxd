"""The map of header compression; see hpack.pyx."""

from libc.stdint cimport uint8_t

cdef extern from "<nghttp2/nghttp2.h>":
    enum: NGHTTP2_NV_FLAG_NONE
    enum: NGHTTP2_NV_FLAG_NO_INDEX
    ctypedef struct nghttp2_nv:
        uint8_t *name
        uint8_t *value
        size_t namelen
        size_t valuelen
        uint8_t flags
    ctypedef struct nghttp2_hd_inflater:
        pass
    ctypedef struct nghttp2_hd_deflater:
        pass


cdef class FieldDecoder:
    cdef nghttp2_hd_inflater *_inflater
    cdef Py_ssize_t _largest

    cdef list decode(self, const uint8_t *block, Py_ssize_t size, bint *changed)


cdef class FieldEncoder:
    cdef nghttp2_hd_deflater *_deflater
    cdef Py_ssize_t _table_size

    cdef int resize(self, Py_ssize_t size) except -1
    cdef Py_ssize_t bound(self, nghttp2_nv *fields, size_t count) noexcept
    cdef Py_ssize_t encode(self, uint8_t *at, Py_ssize_t room, nghttp2_nv *fields, size_t count) except -1
