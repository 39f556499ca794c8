/* As much of a libucp as tells a version that this project is not built for. */
#include <ucp/api/ucp.h>

__attribute__((visibility("default"))) void
ucp_get_version(unsigned *major_version, unsigned *minor_version,
                unsigned *release_number)
{
    *major_version  = 9;
    *minor_version  = 9;
    *release_number = 9;
}
