# What the codec does below Python: slots of objects, and big-endian numbers in plain memory. Inlined where they are cimported; callers
# have checked that the bytes are there.

from cpython.object cimport PyObject
from libc.string cimport memcpy

cdef extern from *:
    """
    #include <structmember.h>

    /* Where a slot of a class lies in its objects; -1 for what is no slot. */
    static Py_ssize_t slot_place(PyObject *descriptor)
    {
        if (!PyObject_TypeCheck(descriptor, &PyMemberDescr_Type))
            return -1;
        return ((PyMemberDescrObject *)descriptor)->d_member->offset;
    }

    static inline PyObject **slot(PyObject *object, Py_ssize_t place)
    {
        return (PyObject **)((char *)object + place);
    }

    /* A new object whose slots are empty, without __init__. */
    static inline PyObject *make_empty(PyObject *type)
    {
        return ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, 0);
    }

    static inline void set_slot(PyObject *object, Py_ssize_t place, PyObject *value)
    {
        PyObject **found = slot(object, place), *old = *found;
        Py_INCREF(value);
        *found = value;
        Py_XDECREF(old);
    }

    /* A new reference; NULL with an AttributeError when the slot is empty. */
    static inline PyObject *get_slot(PyObject *object, Py_ssize_t place)
    {
        PyObject *value = *slot(object, place);
        if (value == NULL)
            PyErr_SetString(PyExc_AttributeError, "a field was never set");
        Py_XINCREF(value);
        return value;
    }

    static inline int has_slot(PyObject *object, Py_ssize_t place)
    {
        return *slot(object, place) != NULL;
    }

    /* Calling the class calls this, instead of __new__ and __init__ with a tuple and a dict. */
    static void set_vectorcall(PyObject *type, vectorcallfunc function)
    {
        ((PyTypeObject *)type)->tp_vectorcall = function;
    }

    static inline int is_of(PyObject *object, PyObject *type)
    {
        return Py_TYPE(object) == (PyTypeObject *)type || PyObject_TypeCheck(object, (PyTypeObject *)type);
    }

    #if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    #define big_endian64 __builtin_bswap64
    #define big_endian32 __builtin_bswap32
    #define big_endian16 __builtin_bswap16
    #else
    #define big_endian64(value) (value)
    #define big_endian32(value) (value)
    #define big_endian16(value) (value)
    #endif
    """
    ctypedef object (*vectorcallfunc)(object callable, PyObject* const* arguments, size_t count, PyObject* names)
    Py_ssize_t slot_place(object descriptor)
    object make_empty(object type)
    void set_slot(object target, Py_ssize_t place, object value)
    object get_slot(object source, Py_ssize_t place)
    bint has_slot(object target, Py_ssize_t place)
    bint is_of(object value, object type)
    void set_vectorcall(object type, vectorcallfunc function)
    unsigned long long big_endian64(unsigned long long value) nogil
    unsigned int big_endian32(unsigned int value) nogil
    unsigned short big_endian16(unsigned short value) nogil

cdef inline short int16_at(const unsigned char* data) noexcept nogil:
    cdef unsigned short raw
    memcpy(&raw, data, 2)
    return <short> big_endian16(raw)


cdef inline int int32_at(const unsigned char* data) noexcept nogil:
    cdef unsigned int raw
    memcpy(&raw, data, 4)
    return <int> big_endian32(raw)


cdef inline long long int64_at(const unsigned char* data) noexcept nogil:
    cdef unsigned long long raw
    memcpy(&raw, data, 8)
    return <long long> big_endian64(raw)


cdef inline double float64_at(const unsigned char* data) noexcept nogil:
    cdef unsigned long long raw
    cdef double value
    memcpy(&raw, data, 8)
    raw = big_endian64(raw)
    memcpy(&value, &raw, 8)
    return value


cdef inline void put_int16(unsigned char* target, int value) noexcept nogil:
    cdef unsigned short raw = big_endian16(<unsigned short> value)
    memcpy(target, &raw, 2)


cdef inline void put_int32(unsigned char* target, int value) noexcept nogil:
    cdef unsigned int raw = big_endian32(<unsigned int> value)
    memcpy(target, &raw, 4)


cdef inline void put_int64(unsigned char* target, long long value) noexcept nogil:
    cdef unsigned long long raw = big_endian64(<unsigned long long> value)
    memcpy(target, &raw, 8)
