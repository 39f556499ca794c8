/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/tools/peer/cache.h"

#include "gtest/tools/peer/check.h"

#include <algorithm>
#include <string>

namespace peer {

namespace {

constexpr size_t pieces = 4; /* both sides have so many */
/* Frameworks do not begin with a page. */
constexpr size_t start         = 192;
constexpr unsigned blank       = 4000; /* seed of what nobody has written */
constexpr size_t seeds         = 3989;
constexpr size_t scatter_step  = 37; /* odd: counts are powers of two */
constexpr size_t scatter_start = 11;

unsigned seed_of(size_t i)
{
    return static_cast<unsigned>(i % seeds);
}

/* Of a block within its piece. */
size_t offset_of(size_t i, const shape &how)
{
    return start + 2 * (i / pieces) * how.size;
}

size_t size_of_piece(const shape &how)
{
    return start + 2 * ((how.blocks + pieces - 1) / pieces) * how.size;
}

} // namespace

cache::cache(const agent &of, const context &framework, kind_of_memory kind,
             const shape &how)
    : of_(of), how_(how)
{
    for (size_t i = 0; i < pieces; ++i) {
        pieces_.push_back(std::make_unique<memory>(
            framework, kind, size_of_piece(how_), 0, true));
    }
}

void cache::add()
{
    for (const auto &piece : pieces_) {
        segments_.push_back(
            std::make_unique<segment>(of_, piece->data(), piece->size(),
                                      piece->kind() == kind_of_memory::gaudi));
    }
}

void cache::remove()
{
    segments_.clear();
}

void cache::describe(const channel &to) const
{
    for (size_t i = 0; i < pieces; ++i) {
        description{reinterpret_cast<uint64_t>(pieces_[i]->data()),
                    segments_[i]->key()}
            .send(to);
    }
}

void cache::prepare(bool is_source)
{
    std::vector<char> bytes(size_of_piece(how_));
    for (size_t at = 0; at < bytes.size(); at += how_.size) {
        fill(bytes.data() + at, std::min(how_.size, bytes.size() - at), blank);
    }
    for (size_t piece = 0; piece < pieces; ++piece) {
        for (size_t i = piece; is_source && (i < how_.blocks); i += pieces) {
            fill(bytes.data() + offset_of(i, how_), how_.size, seed_of(i));
        }
        pieces_[piece]->store(0, bytes.data(), bytes.size());
    }
}

void cache::expect(side_of_list side) const
{
    std::vector<size_t> from(how_.blocks);
    for (size_t i = 0; i < how_.blocks; ++i) {
        const size_t other = scatter(i, how_.blocks);
        (side == side_of_list::here ? from[i] : from[other]) =
            (side == side_of_list::here) ? other : i;
    }
    std::vector<char> wanted(size_of_piece(how_));
    std::vector<char> there(wanted.size());
    for (size_t at = 0; at < wanted.size(); at += how_.size) {
        fill(wanted.data() + at, std::min(how_.size, wanted.size() - at),
             blank);
    }
    for (size_t piece = 0; piece < pieces; ++piece) {
        for (size_t i = piece; i < how_.blocks; i += pieces) {
            fill(wanted.data() + offset_of(i, how_), how_.size,
                 seed_of(from[i]));
        }
        pieces_[piece]->load(0, there.data(), there.size());
        if (wanted != there) {
            const auto differs =
                std::mismatch(wanted.begin(), wanted.end(), there.begin());
            die(std::string(name_of(pieces_[piece]->kind())) + " piece " +
                    std::to_string(piece),
                "differs at byte " +
                    std::to_string(differs.first - wanted.begin()));
        }
    }
}

char *cache::data(size_t i) const
{
    return pieces_[i % pieces]->data() + offset_of(i, how_);
}

const segment &cache::segment_of(size_t i) const
{
    return *segments_[i % pieces];
}

std::vector<description> receive_descriptions(const channel &from)
{
    std::vector<description> result(pieces);
    for (description &piece : result) {
        piece = description::receive(from);
    }
    return result;
}

remote_cache::remote_cache(const connection &to,
                           const std::vector<description> &pieces)
{
    for (const description &piece : pieces) {
        ucs_status_t status  = UCS_OK;
        remote_segment &keys = segments_.emplace_back();
        for (size_t i = 0; (i < to.of().workers()) && (status == UCS_OK); ++i) {
            keys.push_back(std::make_unique<remote_memory>(to.ep(i), piece));
            status = keys.back()->status();
        }
        if (status_ == UCS_OK) {
            status_ = status;
        }
    }
}

uint64_t remote_cache::address(size_t i, const shape &how) const
{
    return segment_of(i).front()->address() + offset_of(i, how);
}

const remote_segment &remote_cache::segment_of(size_t i) const
{
    return segments_[i % pieces];
}

size_t scatter(size_t i, size_t count)
{
    return (i * scatter_step + scatter_start) % count;
}

std::vector<block> list_of(const cache &here, const remote_cache &there)
{
    std::vector<block> list;
    const shape &how = here.how();
    for (size_t i = 0; i < how.blocks; ++i) {
        const size_t other = scatter(i, how.blocks);
        list.push_back({here.data(i), &here.segment_of(i),
                        there.address(other, how), &there.segment_of(other),
                        how.size});
    }
    return list;
}

} // namespace peer
