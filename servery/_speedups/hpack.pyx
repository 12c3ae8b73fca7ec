"""Header compression (RFC 7541) by nghttp2's C library: the only module that calls it.

The twin of the two classes of `servery.http2.library` that stand before hpack. A decoder or encoder belongs to one connection. Nothing
points into what it was given after a call has returned.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t

from ..errors import Http2Error
from ..http2.fields import ENTRY as _ENTRY
from ..http2.frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM
from ..http2.library import LARGEST_LITERAL, TABLE_SIZE as _TABLE_SIZE, TOO_LARGE, UNREADABLE, has_long_literal

cdef extern from "<nghttp2/nghttp2.h>":
    enum: NGHTTP2_HD_INFLATE_EMIT
    enum: NGHTTP2_HD_INFLATE_FINAL
    ctypedef struct nghttp2_info:
        const char *version_str
    int nghttp2_hd_inflate_new(nghttp2_hd_inflater **)
    void nghttp2_hd_inflate_del(nghttp2_hd_inflater *)
    ssize_t nghttp2_hd_inflate_hd2(nghttp2_hd_inflater *, nghttp2_nv *, int *, const uint8_t *, size_t, int)
    int nghttp2_hd_inflate_end_headers(nghttp2_hd_inflater *)
    int nghttp2_hd_deflate_new(nghttp2_hd_deflater **, size_t)
    void nghttp2_hd_deflate_del(nghttp2_hd_deflater *)
    int nghttp2_hd_deflate_change_table_size(nghttp2_hd_deflater *, size_t)
    size_t nghttp2_hd_deflate_bound(nghttp2_hd_deflater *, const nghttp2_nv *, size_t)
    ssize_t nghttp2_hd_deflate_hd(nghttp2_hd_deflater *, uint8_t *, size_t, const nghttp2_nv *, size_t)
    nghttp2_info *nghttp2_version(int)

cdef Py_ssize_t ENTRY = _ENTRY
cdef Py_ssize_t TABLE_SIZE = _TABLE_SIZE
cdef Py_ssize_t LONGEST = LARGEST_LITERAL


def library_version():
    """The version of nghttp2 that is in use."""
    return nghttp2_version(0).version_str.decode("ascii", "replace")


cdef class FieldDecoder:
    """Field sections, out of blocks. `largest` is the size of a list beyond which decoding is given up."""

    def __cinit__(self, largest):
        if nghttp2_hd_inflate_new(&self._inflater):
            raise MemoryError
        self._largest = min(largest, 1 << 48)

    def __dealloc__(self):
        if self._inflater != NULL:
            nghttp2_hd_inflate_del(self._inflater)

    cdef list decode(self, const uint8_t *block, Py_ssize_t size, bint *changed):
        """The fields of a whole block, and whether it has changed the table that both sides share.

        Raises `Http2Error`: that table is lost.
        """
        cdef nghttp2_nv field
        cdef int flags
        cdef ssize_t used
        cdef Py_ssize_t total = 0
        cdef list section = []
        changed[0] = False
        if size > LONGEST and has_long_literal(PyBytes_FromStringAndSize(<const char *>block, size)):
            raise Http2Error(ENHANCE_YOUR_CALM, TOO_LARGE)  # nghttp2 takes none of these
        while True:
            flags = 0
            if size and (block[0] & 0xC0 == 0x40 or block[0] & 0xE0 == 0x20):  # to be kept, or another size of the table
                changed[0] = True
            used = nghttp2_hd_inflate_hd2(self._inflater, &field, &flags, block, size, 1)
            if used < 0:
                raise Http2Error(COMPRESSION_ERROR, UNREADABLE)
            block += used
            size -= used
            if flags & NGHTTP2_HD_INFLATE_EMIT:
                total += field.namelen + field.valuelen + ENTRY
                if total > self._largest:
                    raise Http2Error(ENHANCE_YOUR_CALM, TOO_LARGE)
                section.append((
                    PyBytes_FromStringAndSize(<char *>field.name, field.namelen),
                    PyBytes_FromStringAndSize(<char *>field.value, field.valuelen),
                ))
            if flags & NGHTTP2_HD_INFLATE_FINAL:
                nghttp2_hd_inflate_end_headers(self._inflater)
                return section
            if not size and not flags & NGHTTP2_HD_INFLATE_EMIT:
                raise Http2Error(COMPRESSION_ERROR, UNREADABLE)  # it ends inside of a field


cdef class FieldEncoder:
    """Blocks, out of field sections."""

    def __cinit__(self):
        if nghttp2_hd_deflate_new(&self._deflater, TABLE_SIZE):
            raise MemoryError
        self._table_size = TABLE_SIZE

    def __dealloc__(self):
        if self._deflater != NULL:
            nghttp2_hd_deflate_del(self._deflater)

    cdef int resize(self, Py_ssize_t size) except -1:
        """The peer offers a table of `size` octets, of which `TABLE_SIZE` are taken at most."""
        size = min(size, TABLE_SIZE)
        if size != self._table_size:
            self._table_size = size
            if nghttp2_hd_deflate_change_table_size(self._deflater, size):
                raise MemoryError
        return 0

    cdef Py_ssize_t bound(self, nghttp2_nv *fields, size_t count) noexcept:
        """Octets that these fields take at most."""
        return nghttp2_hd_deflate_bound(self._deflater, fields, count)

    cdef Py_ssize_t encode(self, uint8_t *at, Py_ssize_t room, nghttp2_nv *fields, size_t count) except -1:
        """Write a block; its octets."""
        cdef ssize_t size = nghttp2_hd_deflate_hd(self._deflater, at, room, fields, count)
        if size < 0:
            raise MemoryError
        return size
