cdef extern from "crc32c.h" nogil:
    unsigned int crc32c_extend "barnabas_crc32c_extend" (unsigned int crc, const unsigned char* data, size_t length)
    void prepare "barnabas_crc32c_prepare" (int best)
