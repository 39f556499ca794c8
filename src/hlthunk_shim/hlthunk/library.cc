#include "hlthunk_shim/hlthunk/library.h"

#include "util/library_file.h"

#include <climits>
#include <string_view>

#include <dlfcn.h>

namespace gaudi::shim {

namespace {

enum class need { required, optional };

template <typename Function>
void resolve(void *handle, const char *name, need how_much, Function *&function,
             std::string &missing)
{
    function = reinterpret_cast<Function *>(dlsym(handle, name));
    if ((function == nullptr) && (how_much == need::required)) {
        missing += missing.empty() ? "" : ", ";
        missing += name;
    }
}

} // namespace

library::library(const std::string &path) : path_(path)
{
    char why[PATH_MAX + 100];
    if (gaudi_may_be_loaded(path.c_str(), why, sizeof(why)) == 0) {
        reason_ = why;
        return;
    }
    void *loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    was_loaded_  = (loaded != nullptr);
    handle_      = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (was_loaded_) {
        dlclose(loaded);
    }
    if (handle_ == nullptr) {
        const char *error = dlerror();
        reason_           = (error != nullptr) ? error : "dlopen failed";
        return;
    }

    std::string missing;
#define HLTHUNK_SYMBOL(_need, _result, _name, _parameters)                     \
    resolve(handle_, #_name, need::_need, _name, missing);
#include "hlthunk_shim/hlthunk/symbols.def"
#undef HLTHUNK_SYMBOL
    if (!missing.empty()) {
        reason_ = path + " lacks " + missing;
    }
}

void library::redirect(const char *function, void *to)
{
    const std::string_view wanted = function;
#define HLTHUNK_SYMBOL(_need, _result, _name, _parameters)                     \
    if (wanted == #_name) {                                                    \
        _name = reinterpret_cast<decltype(_name)>(to);                         \
    }
#include "hlthunk_shim/hlthunk/symbols.def"
#undef HLTHUNK_SYMBOL
}

void *library::find(const char *symbol) const
{
    return (handle_ != nullptr) ? dlsym(handle_, symbol) : nullptr;
}

} // namespace gaudi::shim
