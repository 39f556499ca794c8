/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Our declarations for Open MPI's components beside the headers of an Open MPI
 * 5.0 that somebody has (OPENMPI_INCLUDE_DIR): it compiles if they agree. Of
 * ompi_op_t, whose header is not installed whole, the components look at the
 * size when they run.
 */
#include "openmpi/abi.h"

#include <ompi_config.h>

#include <ompi/mca/op/op.h>
#include <opal/constants.h>
#include <opal/mca/accelerator/accelerator.h>

#include <stdio.h>

static int facts;

#define SAME(_ours, _theirs)                                                   \
    do {                                                                       \
        _Static_assert((long)(_ours) == (long)(_theirs), #_theirs);            \
        ++facts;                                                               \
    } while (0)
#define SAME_SIZE(_ours, _theirs) SAME(sizeof(struct _ours), sizeof(_theirs))
#define SAME_MEMBER(_ours, _own, _theirs, _member)                             \
    do {                                                                       \
        SAME(offsetof(struct _ours, _own), offsetof(_theirs, _member));        \
        SAME(sizeof(((struct _ours *)0)->_own),                                \
             sizeof(((_theirs *)0)->_member));                                 \
    } while (0)

static void compare_objects(void)
{
    SAME_SIZE(mpi5_object, opal_object_t);
    SAME_MEMBER(mpi5_object, kind, opal_object_t, obj_class);
    SAME_MEMBER(mpi5_object, references, opal_object_t, obj_reference_count);
    SAME_SIZE(mpi5_class, opal_class_t);
    SAME_MEMBER(mpi5_class, destructors, opal_class_t, cls_destruct_array);
    SAME_MEMBER(mpi5_class, size, opal_class_t, cls_sizeof);
    SAME(MPI5_SUCCESS, OPAL_SUCCESS);
    SAME(MPI5_ERROR, OPAL_ERROR);
    SAME(MPI5_NO_RESOURCE, OPAL_ERR_OUT_OF_RESOURCE);
    SAME(MPI5_NOT_IMPLEMENTED, OPAL_ERR_NOT_IMPLEMENTED);
    SAME(MPI5_NOT_AVAILABLE, OPAL_ERR_NOT_AVAILABLE);
}

static void compare_components(void)
{
    SAME_SIZE(mpi5_component, mca_base_component_t);
    SAME_MEMBER(mpi5_component, mca_major, mca_base_component_t,
                mca_major_version);
    SAME_MEMBER(mpi5_component, project, mca_base_component_t,
                mca_project_name);
    SAME_MEMBER(mpi5_component, framework, mca_base_component_t, mca_type_name);
    SAME_MEMBER(mpi5_component, framework_major, mca_base_component_t,
                mca_type_major_version);
    SAME_MEMBER(mpi5_component, name, mca_base_component_t, mca_component_name);
    SAME_MEMBER(mpi5_component, open, mca_base_component_t, mca_open_component);
    SAME_MEMBER(mpi5_component, register_parameters, mca_base_component_t,
                mca_register_component_params);
    SAME_MEMBER(mpi5_component, flags, mca_base_component_t,
                mca_component_flags);
    SAME_SIZE(mpi5_component_data, mca_base_component_data_t);
}

static void compare_accelerator(void)
{
    SAME_SIZE(mpi5_accelerator_component, opal_accelerator_base_component_t);
    SAME_MEMBER(mpi5_accelerator_component, init,
                opal_accelerator_base_component_t, accelerator_init);
    SAME_MEMBER(mpi5_accelerator_component, finalize,
                opal_accelerator_base_component_t, accelerator_finalize);
    SAME(MPI5_NO_CARD, MCA_ACCELERATOR_NO_DEVICE_ID);
    SAME_SIZE(mpi5_handle, opal_accelerator_stream_t);
    SAME_SIZE(mpi5_handle, opal_accelerator_event_t);
    SAME_MEMBER(mpi5_handle, own, opal_accelerator_stream_t, stream);
    SAME_SIZE(mpi5_pci_address, opal_accelerator_pci_attr_t);
    SAME_MEMBER(mpi5_pci_address, device, opal_accelerator_pci_attr_t,
                device_id);

#define SAME_FUNCTION(_ours, _theirs)                                          \
    SAME_MEMBER(mpi5_accelerator, _ours, opal_accelerator_base_module_t,       \
                _theirs)
    SAME_SIZE(mpi5_accelerator, opal_accelerator_base_module_t);
    SAME_FUNCTION(check_address, check_addr);
    SAME_FUNCTION(create_stream, create_stream);
    SAME_FUNCTION(create_event, create_event);
    SAME_FUNCTION(record_event, record_event);
    SAME_FUNCTION(query_event, query_event);
    SAME_FUNCTION(copy_async, mem_copy_async);
    SAME_FUNCTION(copy, mem_copy);
    SAME_FUNCTION(move, mem_move);
    SAME_FUNCTION(allocate, mem_alloc);
    SAME_FUNCTION(release, mem_release);
    SAME_FUNCTION(get_range, get_address_range);
    SAME_FUNCTION(register_host, host_register);
    SAME_FUNCTION(unregister_host, host_unregister);
    SAME_FUNCTION(get_card, get_device);
    SAME_FUNCTION(get_pci_address, get_device_pci_attr);
    SAME_FUNCTION(can_access_peer, device_can_access_peer);
    SAME_FUNCTION(get_buffer_id, get_buffer_id);
}

static void compare_op(void)
{
    SAME_SIZE(mpi5_op_component, ompi_op_base_component_t);
    SAME_MEMBER(mpi5_op_component, init, ompi_op_base_component_t,
                opc_init_query);
    SAME_MEMBER(mpi5_op_component, query, ompi_op_base_component_t,
                opc_op_query);
    SAME(MPI5_OP_TYPES, OMPI_OP_BASE_TYPE_MAX);
    SAME_SIZE(mpi5_op_module, ompi_op_base_module_t);
    SAME_MEMBER(mpi5_op_module, enable, ompi_op_base_module_t, opm_enable);
    SAME_MEMBER(mpi5_op_module, op, ompi_op_base_module_t, opm_op);
    SAME_MEMBER(mpi5_op_module, reduce, ompi_op_base_module_t, opm_fns);
    SAME_MEMBER(mpi5_op_module, reduce_to, ompi_op_base_module_t,
                opm_3buff_fns);
}

int main(void)
{
    compare_objects();
    compare_components();
    compare_accelerator();
    compare_op();
    printf("%d facts agree\n", facts);
    return 0;
}
