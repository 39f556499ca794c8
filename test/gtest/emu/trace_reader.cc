/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/emu/trace_reader.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>

#include <cjson/cJSON.h>

namespace gaudi::test {

namespace {

using json = std::unique_ptr<cJSON, decltype(&cJSON_Delete)>;

std::string text_of(const cJSON *event, const char *name)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(event, name);
    if (cJSON_IsNumber(value) != 0) {
        std::ostringstream text;
        text.precision(17);
        text << value->valuedouble;
        return text.str();
    }
    return (cJSON_IsString(value) != 0) ? value->valuestring : "";
}

int64_t time_of(const cJSON *event, const char *name)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(event, name);
    return (cJSON_IsNumber(value) != 0) ? std::llround(value->valuedouble * 1e3)
                                        : -1;
}

class reader {
public:
    explicit reader(trace &result) : result_(result) {}

    void read(const cJSON *events)
    {
        const cJSON *event = nullptr;
        cJSON_ArrayForEach(event, events)
        {
            if (text_of(event, "ph") == "M") {
                take_name(event);
            }
        }
        cJSON_ArrayForEach(event, events)
        {
            take_event(event);
        }
        if (!begun_.empty()) {
            complain("a link's slice has no end: " + begun_.begin()->first);
        }
    }

private:
    void complain(const std::string &why)
    {
        result_.wrong = result_.wrong.empty() ? why : result_.wrong;
    }

    void take_name(const cJSON *event)
    {
        const std::string what = text_of(event, "name");
        const cJSON *arguments =
            cJSON_GetObjectItemCaseSensitive(event, "args");
        auto &names = (what == "process_name") ? cards_ : rows_;
        if ((what == "process_name") || (what == "thread_name")) {
            const std::string number =
                text_of(event, (what == "process_name") ? "pid" : "tid");
            const std::string name = text_of(arguments, "name");
            if (!names.emplace(number, name).second &&
                (names[number] != name)) {
                complain(number + " has two names");
            }
        }
    }

    std::string name_of(const std::map<std::string, std::string> &names,
                        const std::string &number)
    {
        const auto known = names.find(number);
        if (known == names.end()) {
            complain("no name for " + number);
            return "";
        }
        return known->second;
    }

    traced_slice slice_of(const cJSON *event)
    {
        traced_slice slice;
        slice.card  = name_of(cards_, text_of(event, "pid"));
        slice.name  = text_of(event, "name");
        slice.begin = time_of(event, "ts");
        if (slice.begin < 0) {
            complain("an event has no time");
        }
        const cJSON *argument = nullptr;
        cJSON_ArrayForEach(argument,
                           cJSON_GetObjectItemCaseSensitive(event, "args"))
        {
            slice.arguments[argument->string] =
                text_of(cJSON_GetObjectItemCaseSensitive(event, "args"),
                        argument->string);
        }
        return slice;
    }

    void take_event(const cJSON *event)
    {
        const std::string phase = text_of(event, "ph");
        const std::string id    = text_of(event, "id");
        if (phase == "X") {
            traced_slice slice = slice_of(event);
            const int64_t took = time_of(event, "dur");
            slice.row          = name_of(rows_, text_of(event, "tid"));
            slice.end          = slice.begin + took;
            if (took < 0) {
                complain("a slice has no length");
            }
            auto &rows = (text_of(event, "cat") == "port") ? result_.ports
                                                           : result_.copies;
            rows.push_back(slice);
        } else if (phase == "i") {
            result_.faults.push_back(slice_of(event));
            result_.faults.back().row = name_of(rows_, text_of(event, "tid"));
        } else if (phase == "b") {
            traced_slice slice = slice_of(event);
            slice.row          = slice.name;
            if (!begun_.emplace(id, slice).second) {
                complain("two slices have the number " + id);
            }
        } else if (phase == "e") {
            const auto begun = begun_.find(id);
            if (begun == begun_.end()) {
                complain("a link's slice has no beginning: " + id);
                return;
            }
            begun->second.end = time_of(event, "ts");
            result_.links.push_back(begun->second);
            begun_.erase(begun);
        } else if (phase != "M") {
            complain("an event of kind '" + phase + "'");
        }
    }

    trace &result_;
    std::map<std::string, std::string> cards_;
    std::map<std::string, std::string> rows_;
    std::map<std::string, traced_slice> begun_;
};

std::vector<traced_slice> by_begin(std::vector<traced_slice> slices)
{
    std::sort(slices.begin(), slices.end(),
              [](const auto &a, const auto &b) { return a.begin < b.begin; });
    return slices;
}

} // namespace

trace read_trace(const std::string &path)
{
    trace result;
    std::ifstream file(path, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    if (!text.starts_with("[\n")) {
        result.wrong = "no array begins";
        return result;
    }
    if (!text.ends_with("\n]\n")) {
        const size_t end     = text.rfind('\n') + 1;
        result.has_half_line = (end != text.size());
        text.erase(end);
        if (text.ends_with(",\n")) {
            text.erase(text.size() - 2);
        }
        text += ']';
        result.is_open = true;
    }
    const json events(cJSON_ParseWithOpts(text.c_str(), nullptr, 1),
                      cJSON_Delete);
    if (events == nullptr) {
        const char *at = cJSON_GetErrorPtr();
        result.wrong   = "no JSON: " + std::string(at).substr(0, 200);
        return result;
    }
    reader(result).read(events.get());
    return result;
}

std::vector<traced_slice> trace::copies_of(const std::string &card,
                                           const std::string &row) const
{
    std::vector<traced_slice> found;
    for (const traced_slice &slice : copies) {
        if (slice.card.starts_with(card + ' ') && (slice.row == row)) {
            found.push_back(slice);
        }
    }
    return by_begin(found);
}

std::vector<traced_slice> trace::links_of(const std::string &row) const
{
    std::vector<traced_slice> found;
    for (const traced_slice &slice : links) {
        if (slice.row == row) {
            found.push_back(slice);
        }
    }
    return by_begin(found);
}

std::string trace::overlap() const
{
    std::map<std::string, std::vector<traced_slice>> rows;
    for (const traced_slice &slice : copies) {
        rows[slice.card + ' ' + slice.row].push_back(slice);
    }
    for (const auto &[name, slices] : rows) {
        const traced_slice *before = nullptr;
        for (const traced_slice &slice : by_begin(slices)) {
            if (slice.end < slice.begin) {
                return name + ": a slice ends before it begins";
            }
        }
        const auto sorted = by_begin(slices);
        for (const traced_slice &slice : sorted) {
            if ((before != nullptr) && (slice.begin < before->end)) {
                return name + ": job " + slice.arguments.at("job") +
                       " begins in job " + before->arguments.at("job");
            }
            before = &slice;
        }
    }
    return "";
}

} // namespace gaudi::test
