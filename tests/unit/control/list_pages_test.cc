// Lists of jobs and tensors in pages, as a client goes through them.
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "daemon/control/control_service.h"
#include "daemon/control/page_token.h"
#include "tests/support/control/grpc_fixture.h"
#include "tier/v1/control.grpc.pb.h"

namespace tier::control {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ListPages : public test::GrpcFixture {
 protected:
  ListPages() { api_.description.epoch = 0x1234; }
  template <typename Method, typename Request, typename Response>
  grpc::Status Call(Method method, const Request& request, Response* response) {
    grpc::ClientContext context;
    SetDeadline(&context);
    return (Stub(options_.control_socket).get()->*method)(&context, request, response);
  }
  grpc::Status Jobs(const v1::ListJobsRequest& request, v1::ListJobsResponse* response) {
    return Call(&v1::ControlService::Stub::ListJobs, request, response);
  }
  grpc::Status Tensors(const v1::ListTensorsRequest& request, v1::ListTensorsResponse* response) {
    return Call(&v1::ControlService::Stub::ListTensors, request, response);
  }
  void RefuseJobs(const v1::ListJobsRequest& request, const std::string& why) {
    v1::ListJobsResponse response;
    const grpc::Status refused = Jobs(request, &response);
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << request.ShortDebugString();
    EXPECT_THAT(refused.error_message(), HasSubstr(why));
  }
  void RefuseTensors(const v1::ListTensorsRequest& request, const std::string& why) {
    v1::ListTensorsResponse response;
    const grpc::Status refused = Tensors(request, &response);
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << request.ShortDebugString();
    EXPECT_THAT(refused.error_message(), HasSubstr(why));
  }
  // What each page has, by name: jobs, reservations as r:UID/NAME, and manifests as UID/NAME.
  std::vector<std::vector<std::string>> AllPages(int page_size) {
    std::vector<std::vector<std::string>> pages;
    v1::ListJobsRequest request;
    request.set_page_size(page_size);
    do {
      v1::ListJobsResponse response;
      const grpc::Status listed = Jobs(request, &response);
      EXPECT_TRUE(listed.ok()) << listed.error_message();
      auto& page = pages.emplace_back();
      for (const auto& job : response.jobs()) page.push_back(job.name());
      for (const auto& each : response.unopened_reservations())
        page.push_back("r:" + std::to_string(each.uid()) + "/" + each.name());
      for (const auto& each : response.stored_manifests())
        page.push_back(std::to_string(each.uid()) + "/" + each.name());
      request.set_page_token(response.next_page_token());
    } while (!request.page_token().empty() && pages.size() < 9);
    return pages;
  }
};

TEST_F(ListPages, JobsComeFirstAndThenManifestsWithoutAGapOrAnEmptyPage) {
  api_.jobs = {{.id = 3, .name = "a", .counters = {}},
               {.id = 5, .name = "b", .counters = {}},
               {.id = 9, .name = "c", .counters = {}}};
  api_.stored = {{.uid = 7, .name = "x", .damage = {}}, {.uid = 7, .name = "y", .damage = {}}};
  EXPECT_THAT(AllPages(0), ElementsAre(ElementsAre("a", "b", "c", "7/x", "7/y")));
  EXPECT_THAT(AllPages(5), ElementsAre(ElementsAre("a", "b", "c", "7/x", "7/y")));
  EXPECT_THAT(AllPages(4), ElementsAre(ElementsAre("a", "b", "c", "7/x"), ElementsAre("7/y")));
  EXPECT_THAT(AllPages(3), ElementsAre(ElementsAre("a", "b", "c"), ElementsAre("7/x", "7/y")));
  EXPECT_THAT(AllPages(2), ElementsAre(ElementsAre("a", "b"), ElementsAre("c", "7/x"), ElementsAre("7/y")));
  api_.stored.clear();
  EXPECT_THAT(AllPages(3), ElementsAre(ElementsAre("a", "b", "c")));
  api_.jobs.clear();
  EXPECT_THAT(AllPages(1), ElementsAre(ElementsAre()));
}

TEST_F(ListPages, ReservationsThatAreNotOpenComeBetweenJobsAndManifests) {
  api_.jobs = {{.id = 3, .name = "a", .counters = {}}};
  api_.unopened = {{.uid = 7, .owner = {}, .name = "b", .why = "no room"},
                   {.uid = 7, .owner = {}, .name = "c", .why = {}}};
  api_.stored = {{.uid = 7, .name = "x", .damage = {}}};
  EXPECT_THAT(AllPages(0), ElementsAre(ElementsAre("a", "r:7/b", "r:7/c", "7/x")));
  EXPECT_THAT(AllPages(3), ElementsAre(ElementsAre("a", "r:7/b", "r:7/c"), ElementsAre("7/x")));
  EXPECT_THAT(AllPages(2), ElementsAre(ElementsAre("a", "r:7/b"), ElementsAre("r:7/c", "7/x")));
  EXPECT_THAT(AllPages(1),
              ElementsAre(ElementsAre("a"), ElementsAre("r:7/b"), ElementsAre("r:7/c"), ElementsAre("7/x")));
  api_.stored.clear();
  EXPECT_THAT(AllPages(2), ElementsAre(ElementsAre("a", "r:7/b"), ElementsAre("r:7/c")));
  v1::ListJobsResponse response;
  ASSERT_TRUE(Jobs({}, &response).ok());
  EXPECT_EQ(response.unopened_reservations(0).reason(), "no room");
}

TEST_F(ListPages, AJobThatEndsBetweenTwoPagesHidesNoOther) {
  api_.jobs = {{.id = 3, .name = "a", .counters = {}},
               {.id = 5, .name = "b", .counters = {}},
               {.id = 9, .name = "c", .counters = {}}};
  v1::ListJobsRequest request;
  request.set_page_size(1);
  v1::ListJobsResponse response;
  ASSERT_TRUE(Jobs(request, &response).ok());
  api_.jobs.erase(api_.jobs.begin(), api_.jobs.begin() + 2);
  request.set_page_token(response.next_page_token());
  response.Clear();
  ASSERT_TRUE(Jobs(request, &response).ok());
  ASSERT_EQ(response.jobs_size(), 1);
  EXPECT_EQ(response.jobs(0).name(), "c");
}

TEST_F(ListPages, TensorsAreListedOnceAndAPageIsBounded) {
  for (uint64_t id = 0; id < kTensorsListedMax + 5; ++id) api_.tensors.push_back({.tensor = id});
  v1::ListTensorsRequest request;
  request.set_job("train");
  const std::pair<int32_t, size_t> sizes[] = {{0, kTensorsListedDefault}, {7, 7}, {INT32_MAX, kTensorsListedMax}};
  for (const auto& [asked, given] : sizes) {
    v1::ListTensorsResponse response;
    request.set_page_size(asked);
    ASSERT_TRUE(Tensors(request, &response).ok());
    EXPECT_EQ(response.tensors_size(), static_cast<int>(given));
    EXPECT_NE(response.next_page_token(), "");
  }
  uint64_t next = 0;
  do {
    v1::ListTensorsResponse response;
    const grpc::Status listed = Tensors(request, &response);
    ASSERT_TRUE(listed.ok()) << listed.error_message();
    for (const auto& tensor : response.tensors()) EXPECT_EQ(tensor.id(), next++);
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(next, kTensorsListedMax + 5);
}

TEST_F(ListPages, APageThatIsNoneIsRefused) {
  v1::ListJobsRequest jobs;
  v1::ListTensorsRequest tensors;
  tensors.set_job("train");
  jobs.set_page_size(-1);
  RefuseJobs(jobs, "page_size is -1");
  tensors.set_page_size(-1);
  RefuseTensors(tensors, "page_size is -1");
  jobs.set_page_size(0);
  tensors.set_page_size(0);
  for (const std::string token : {"x", "1234/j/", "1234/q/0/"}) {
    jobs.set_page_token(token);
    RefuseJobs(jobs, "is none that tierd gave");
    tensors.set_page_token(token);
    RefuseTensors(tensors, "is none that tierd gave");
  }
  const PagePlace of_jobs{.list = PagePlace::List::kJobs, .number = 1, .name = {}};
  const PagePlace of_tensors{.list = PagePlace::List::kTensors, .number = 1, .name = "train"};
  jobs.set_page_token(ToPageToken(0x99, of_jobs));
  RefuseJobs(jobs, "from before tierd was started");
  tensors.set_page_token(ToPageToken(0x99, of_tensors));
  RefuseTensors(tensors, "from before tierd was started");
  jobs.set_page_token(ToPageToken(0x1234, of_tensors));
  RefuseJobs(jobs, "of a list of tensors");
  tensors.set_page_token(ToPageToken(0x1234, of_jobs));
  RefuseTensors(tensors, "of another list");
  PagePlace of_another = of_tensors;
  of_another.name = "other";
  tensors.set_page_token(ToPageToken(0x1234, of_another));
  RefuseTensors(tensors, "of another list");
  PagePlace far = of_tensors;
  far.number = uint64_t{1} << 32;  // Cut to 32 bits it would be the first.
  tensors.set_page_token(ToPageToken(0x1234, far));
  RefuseTensors(tensors, "of another list");
}

}  // namespace
}  // namespace tier::control
