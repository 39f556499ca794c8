/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Capsules of DLPack for device memory: what of the Python module cannot be
 * Python. A capsule ends wherever its last reference goes, also while an
 * exception is on its way, and a consumer ends a tensor on any thread.
 *
 * Opened by the package with ctypes (PyDLL), so that it fits every Python 3 and
 * needs no headers of one: the functions below are of the stable ABI, and the
 * interpreter has them.
 *
 * The structures are those of dlpack.h, https://dmlc.github.io/dlpack: the one
 * of version 1, and the one of before, which has no version in it.
 */
#include <stdint.h>
#include <stdlib.h>

typedef struct object object; /* PyObject */

extern object *PyCapsule_New(void *pointer, const char *name,
                             void (*destructor)(object *));
extern void *PyCapsule_GetPointer(object *capsule, const char *name);
extern int PyCapsule_IsValid(object *capsule, const char *name);
extern object *PyErr_NoMemory(void);
extern int PyGILState_Ensure(void);
extern void PyGILState_Release(int state);
extern int Py_IsInitialized(void);
extern void Py_DecRef(object *of);
extern void Py_IncRef(object *of);

struct tensor {
    void *data;
    int32_t device_type;
    int32_t device_id;
    int32_t dimensions;
    uint8_t code; /* of the elements; 1: unsigned integers */
    uint8_t bits;
    uint16_t lanes;
    int64_t *shape;
    int64_t *strides; /* NULL: without gaps */
    uint64_t byte_offset;
};

struct managed {
    struct tensor tensor;
    void *context;
    void (*deleter)(struct managed *self);
};

struct versioned {
    uint32_t major;
    uint32_t minor;
    void *context;
    void (*deleter)(struct versioned *self);
    uint64_t flags;
    struct tensor tensor;
};

/* A tensor that was given out, of either form. */
struct export
{
    union {
        struct managed managed;
        struct versioned versioned;
    };
    int64_t length;
    object *owner; /* keeps the memory */
};

static const char plain_name[]     = "dltensor";
static const char versioned_name[] = "dltensor_versioned";

/* After the interpreter's end there is nothing to give back. */
static void end(struct export *given)
{
    if (Py_IsInitialized()) {
        const int state = PyGILState_Ensure();

        Py_DecRef(given->owner);
        PyGILState_Release(state);
    }
    free(given);
}

static void end_managed(struct managed *self)
{
    end(self->context);
}

static void end_versioned(struct versioned *self)
{
    end(self->context);
}

/* Who has taken the tensor has renamed the capsule. */
static void end_capsule(object *capsule)
{
    if (PyCapsule_IsValid(capsule, plain_name)) {
        end_managed(PyCapsule_GetPointer(capsule, plain_name));
    } else if (PyCapsule_IsValid(capsule, versioned_name)) {
        end_versioned(PyCapsule_GetPointer(capsule, versioned_name));
    }
}

/*
 * A capsule of bytes in device memory.
 *
 * owner      Gets a reference until the tensor ends.
 * version    1 for the versioned structure; 0 for the one of before.
 * flags      Of the versioned one: 2 for a copy that was made for it.
 *
 * Returns a new reference, or NULL with an exception.
 */
__attribute__((visibility("default"))) object *
gaudi_dlpack_capsule(object *owner, void *address, int64_t length,
                     int32_t device_type, int32_t device_id, unsigned version,
                     uint64_t flags);

object *gaudi_dlpack_capsule(object *owner, void *address, int64_t length,
                             int32_t device_type, int32_t device_id,
                             unsigned version, uint64_t flags)
{
    struct export *given = calloc(1, sizeof(*given));
    struct tensor tensor = {.data        = address,
                            .device_type = device_type,
                            .device_id   = device_id,
                            .dimensions  = 1,
                            .code        = 1,
                            .bits        = 8,
                            .lanes       = 1};
    object *capsule;

    if (given == NULL) {
        return PyErr_NoMemory();
    }
    given->length = length;
    given->owner  = owner;
    tensor.shape  = &given->length;
    if (version == 0) {
        given->managed = (struct managed){tensor, given, end_managed};
    } else {
        given->versioned =
            (struct versioned){version, 0, given, end_versioned, flags, tensor};
    }
    capsule = PyCapsule_New(given, (version == 0) ? plain_name : versioned_name,
                            end_capsule);
    if (capsule == NULL) {
        free(given);
        return NULL;
    }
    Py_IncRef(owner);
    return capsule;
}
