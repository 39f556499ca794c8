/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/memory/application/rebinding.h"

#include "util/process.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

namespace gaudi::base {

namespace {

#ifdef __aarch64__
constexpr uint32_t slot_types[] = {R_AARCH64_JUMP_SLOT, R_AARCH64_GLOB_DAT,
                                   R_AARCH64_ABS64};
#else
constexpr uint32_t slot_types[] = {R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT,
                                   R_X86_64_64};
#endif

uint64_t to_number(const void *pointer)
{
    return reinterpret_cast<uint64_t>(pointer);
}

/* What the dynamic linker knows of a file. */
class loaded_file {
public:
    explicit loaded_file(void *handle)
    {
        if (dlinfo(handle, RTLD_DI_LINKMAP, &map_) != 0) {
            map_ = nullptr;
            return;
        }
        const ElfW(Phdr) *first = nullptr;
        const int count         = dlinfo(handle, RTLD_DI_PHDR, &first);
        if (count > 0) {
            segments_ = {first, static_cast<size_t>(count)};
        }
    }

    [[nodiscard]] uint64_t base() const
    {
        return (map_ != nullptr) ? map_->l_addr : 0;
    }

    /* Of the dynamic section; 0: there is none. */
    [[nodiscard]] uint64_t number(int64_t tag) const
    {
        if ((map_ == nullptr) || (map_->l_ld == nullptr)) {
            return 0;
        }
        for (auto *entry = map_->l_ld; entry->d_tag != DT_NULL; ++entry) {
            if (entry->d_tag == tag) {
                return entry->d_un.d_val;
            }
        }
        return 0;
    }

    /* The dynamic linker has added the base to most of them. */
    template <typename Entry>
    [[nodiscard]] Entry *table(int64_t tag) const
    {
        const uint64_t at = number(tag);
        return reinterpret_cast<Entry *>(
            ((at != 0) && (at < base())) ? base() + at : at);
    }

    /* Whether the dynamic linker has loaded a library for it. */
    [[nodiscard]] bool needs(const char *library) const
    {
        const char *strings = table<const char>(DT_STRTAB);
        if ((map_ == nullptr) || (map_->l_ld == nullptr) ||
            (strings == nullptr)) {
            return false;
        }
        for (auto *entry = map_->l_ld; entry->d_tag != DT_NULL; ++entry) {
            if ((entry->d_tag == DT_NEEDED) &&
                (std::strcmp(strings + entry->d_un.d_val, library) == 0)) {
                return true;
            }
        }
        return false;
    }

    /* Let a number be written to, where it is; nobody takes that away again,
     * since others may be writing beside it. */
    [[nodiscard]] bool make_writable(const uint64_t *number) const
    {
        const auto page   = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
        const uint64_t at = to_number(number);
        int protection    = PROT_READ | PROT_WRITE;
        for (const ElfW(Phdr) & segment : segments_) {
            const uint64_t start = base() + segment.p_vaddr;
            if ((segment.p_type == PT_LOAD) && (at >= start) &&
                (at < start + segment.p_memsz) &&
                ((segment.p_flags & PF_X) != 0)) {
                protection |= PROT_EXEC;
            }
        }
        return mprotect(reinterpret_cast<void *>(at & -page), page,
                        protection) == 0;
    }

private:
    link_map *map_ = nullptr;
    std::span<const ElfW(Phdr)> segments_;
};

/* What one table of relocations had filled in. Not all of it is a variable to
 * AddressSanitizer's runtime. */
[[gnu::no_sanitize_address]] void
rebind_table(const loaded_file &file, const ElfW(Rela) * table, size_t bytes,
             std::span<const rebinding> functions)
{
    for (const ElfW(Rela) & entry :
         std::span(table, (table != nullptr) ? bytes / sizeof(*table) : 0)) {
        auto *slot = reinterpret_cast<uint64_t *>(file.base() + entry.r_offset);
        const auto type = static_cast<uint32_t>(ELF64_R_TYPE(entry.r_info));
        if ((ELF64_R_SYM(entry.r_info) == 0) ||
            (to_number(slot) % sizeof(*slot) != 0) ||
            (std::find(std::begin(slot_types), std::end(slot_types), type) ==
             std::end(slot_types))) {
            continue;
        }
        uint64_t value   = __atomic_load_n(slot, __ATOMIC_RELAXED);
        const auto found = std::find_if(
            functions.begin(), functions.end(), [&](const rebinding &each) {
                return to_number(each.original) == value;
            });
        if ((found != functions.end()) && file.make_writable(slot)) {
            __atomic_compare_exchange_n(slot, &value,
                                        to_number(found->replacement), false,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED);
        }
    }
}

} // namespace

bool rebind_symbols(void *handle, std::span<const rebinding> functions)
{
    const loaded_file file(handle);
    std::vector<std::pair<uint64_t *, uint64_t>> changes;
    for (const rebinding &function : functions) {
        const void *leads_to = dlsym(handle, function.name);
        if (leads_to == function.replacement) {
            continue;
        }
        Dl_info info;
        void *entry = nullptr;
        if ((leads_to != function.original) ||
            (dladdr1(leads_to, &info, &entry, RTLD_DL_SYMENT) == 0) ||
            (entry == nullptr) || (info.dli_saddr != leads_to) ||
            (info.dli_fbase != reinterpret_cast<void *>(file.base())) ||
            (std::strcmp(info.dli_sname, function.name) != 0)) {
            return false;
        }
        auto &symbol = *static_cast<ElfW(Sym) *>(entry);
        if ((ELF64_ST_TYPE(symbol.st_info) != STT_FUNC) ||
            !file.make_writable(&symbol.st_value)) {
            return false;
        }
        changes.emplace_back(&symbol.st_value,
                             to_number(function.replacement) - file.base());
    }
    for (const auto &[where, value] : changes) {
        __atomic_store_n(where, value, __ATOMIC_RELEASE);
    }
    return true;
}

bool rebind_slots(const char *library, std::span<const rebinding> functions)
{
    bool is_needed     = false;
    const auto look_at = [&](void *handle) {
        if (handle == nullptr) {
            return; /* gone again, or no library */
        }
        const loaded_file file(handle);
        is_needed |= file.needs(library);
        rebind_table(file, file.table<const ElfW(Rela)>(DT_RELA),
                     file.number(DT_RELASZ), functions);
        rebind_table(file, file.table<const ElfW(Rela)>(DT_JMPREL),
                     file.number(DT_PLTRELSZ), functions);
        dlclose(handle);
    };
    /* The program. Waits for what another thread is loading: its functions may
     * have been looked up before they were rebound. */
    look_at(util::open_loaded(nullptr));
    const auto files = util::loaded_files();
    for (const std::string &name : files) {
        look_at(util::open_loaded(name.c_str()));
    }
    return is_needed && !files.empty();
}

} // namespace gaudi::base
