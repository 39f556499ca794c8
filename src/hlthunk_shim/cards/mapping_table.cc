#include "hlthunk_shim/cards/mapping_table.h"

#include "util/text.h"
#include "util/unique_fd.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::shim {

namespace {

using json_value = std::unique_ptr<cJSON, decltype(&cJSON_Delete)>;

mapping_table no_table(const std::string &why)
{
    return {{}, why};
}

/* "line 2, column 7" of an offset; both count from 1, columns in bytes. */
std::string place_of(const std::string &text, size_t offset)
{
    offset                  = std::min(offset, text.size());
    const std::string start = text.substr(0, offset);
    const auto lines        = std::count(start.begin(), start.end(), '\n');
    const size_t last       = start.rfind('\n');
    const size_t column     = (last == start.npos) ? offset : offset - last - 1;
    return "line " + std::to_string(lines + 1) + ", column " +
           std::to_string(column + 1);
}

const char *kind_of(const cJSON *value)
{
    switch (value->type & 0xff) {
    case cJSON_False:
    case cJSON_True:
        return "a truth value";
    case cJSON_NULL:
        return "null";
    case cJSON_Number:
        return "a number";
    case cJSON_String:
        return "a string";
    case cJSON_Array:
        return "an array";
    default:
        return "an object";
    }
}

/* What can be quoted in a message: short, and without control characters. */
std::string quote(const std::string &text)
{
    constexpr size_t longest = 40;
    return "'" + util::to_printable(text.substr(0, longest)) +
           ((text.size() > longest) ? "...'" : "'");
}

/* Reads the members of one object; remembers the first fault. */
class object_reader {
public:
    explicit object_reader(const cJSON *object) : object_(object) {}

    unsigned number(const char *name)
    {
        const cJSON *value = member(name, cJSON_Number, "a number");
        if (value == nullptr) {
            return 0;
        }
        const double given = value->valuedouble;
        if (!(given >= 0) || (given > max_mapping_number) ||
            (given != std::floor(given))) {
            char text[64];
            std::snprintf(text, sizeof(text),
                          "is %.15g, not an integer from 0 to %u", given,
                          max_mapping_number);
            fail(name, text);
            return 0;
        }
        return static_cast<unsigned>(given);
    }

    std::string bus_id(const char *name)
    {
        const cJSON *value = member(name, cJSON_String, "a string");
        if (value == nullptr) {
            return "";
        }
        std::string normal = normalize_bus_id(value->valuestring);
        if (normal.empty()) {
            fail(name, "is " + quote(value->valuestring) +
                           ", not a bus id like 0000:19:00.0");
        }
        return normal;
    }

    [[nodiscard]] const std::string &error() const { return error_; }

private:
    const cJSON *member(const char *name, int type, const char *wanted)
    {
        const cJSON *found = nullptr;
        const cJSON *each  = nullptr;
        cJSON_ArrayForEach(each, object_)
        {
            if (std::strcmp(each->string, name) != 0) {
                continue;
            }
            if (found != nullptr) {
                fail(name, "is there twice");
                return nullptr;
            }
            found = each;
        }
        if (found == nullptr) {
            fail(name, "is missing");
        } else if ((found->type & 0xff) != type) {
            fail(name, std::string("is ") + kind_of(found) + ", not " + wanted);
            return nullptr;
        }
        return found;
    }

    void fail(const char *name, const std::string &why)
    {
        if (error_.empty()) {
            error_ = std::string(name) + " " + why;
        }
    }

    const cJSON *object_;
    std::string error_;
};

/* What an entry has in common with an earlier one; empty: nothing. */
std::string find_duplicate(const std::vector<mapping_entry> &earlier,
                           const mapping_entry &entry)
{
    for (size_t i = 0; i < earlier.size(); ++i) {
        const std::string what =
            (earlier[i].index == entry.index)
                ? "index " + std::to_string(entry.index)
            : (earlier[i].module_id == entry.module_id)
                ? "module_id " + std::to_string(entry.module_id)
            : (earlier[i].bus_id == entry.bus_id) ? "bus_id " + entry.bus_id
                                                  : "";
        if (!what.empty()) {
            return what + " is entry " + std::to_string(i + 1) + "'s already";
        }
    }
    return "";
}

} // namespace

std::string normalize_bus_id(const std::string &text)
{
    constexpr std::string_view with_domain = "xxxx:xx:xx.x";
    std::string full = (text.size() == 7) ? "0000:" + text : text;
    if (full.size() != with_domain.size()) {
        return "";
    }
    for (size_t i = 0; i < full.size(); ++i) {
        const auto letter = static_cast<unsigned char>(full[i]);
        if ((with_domain[i] == 'x') ? (std::isxdigit(letter) == 0)
                                    : (full[i] != with_domain[i])) {
            return "";
        }
        full[i] = static_cast<char>(std::tolower(letter));
    }
    return full;
}

bool is_mapping_text(const std::string &value)
{
    const size_t first = value.find_first_not_of(" \t\r\n");
    return (first != value.npos) && (value[first] == '[');
}

mapping_table parse_mapping_table(const std::string &json)
{
    if (json.size() > max_mapping_bytes) {
        return no_table("it is larger than " +
                        std::to_string(max_mapping_bytes) + " bytes");
    }
    /* The parser would take it for the end. */
    const size_t zero = json.find('\0');
    if (zero != json.npos) {
        return no_table(place_of(json, zero) + ": a zero byte");
    }

    const char *end = json.c_str();
    const json_value root(
        cJSON_ParseWithLengthOpts(json.c_str(), json.size() + 1, &end, 1),
        cJSON_Delete);
    if (root == nullptr) {
        /* Where a string should be, the parser points one byte behind. */
        return no_table(
            "near " + place_of(json, static_cast<size_t>(end - json.c_str())) +
            ": this is not JSON");
    }
    if (!cJSON_IsArray(root.get())) {
        return no_table(std::string("it is ") + kind_of(root.get()) +
                        ", not an array of objects");
    }

    mapping_table result;
    const cJSON *each = nullptr;
    cJSON_ArrayForEach(each, root.get())
    {
        const std::string where =
            "entry " + std::to_string(result.entries.size() + 1) + ": ";
        if (result.entries.size() == max_mapping_entries) {
            return no_table(where + "there are more than " +
                            std::to_string(max_mapping_entries));
        }
        if (!cJSON_IsObject(each)) {
            return no_table(where + "it is " + kind_of(each) +
                            ", not an object");
        }
        object_reader reader(each);
        mapping_entry entry{};
        entry.index     = reader.number("index");
        entry.module_id = reader.number("module_id");
        entry.bus_id    = reader.bus_id("bus_id");
        if (!reader.error().empty()) {
            return no_table(where + reader.error());
        }
        const std::string duplicate = find_duplicate(result.entries, entry);
        if (!duplicate.empty()) {
            return no_table(where + duplicate);
        }
        result.entries.push_back(std::move(entry));
    }
    return result;
}

mapping_table read_mapping_table(const std::string &value)
{
    if (is_mapping_text(value)) {
        return parse_mapping_table(value);
    }

    /* Not blocking: the path may be a pipe's. */
    const util::unique_fd fd(
        ::open(value.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd) {
        return no_table(std::string("the file cannot be opened: ") +
                        std::strerror(errno));
    }
    struct stat info;
    if ((fstat(fd.get(), &info) != 0) || !S_ISREG(info.st_mode)) {
        return no_table("it is not a regular file");
    }
    std::string text;
    std::array<char, 4096> part;
    ssize_t length = 0;
    while ((text.size() <= max_mapping_bytes) &&
           ((length = ::read(fd.get(), part.data(), part.size())) > 0)) {
        text.append(part.data(), static_cast<size_t>(length));
    }
    if (length < 0) {
        return no_table(std::string("the file cannot be read: ") +
                        std::strerror(errno));
    }
    return parse_mapping_table(text);
}

} // namespace gaudi::shim
