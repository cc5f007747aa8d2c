//! What the broker sends to clients and daemons.

use super::{
    AckFrame, ErrorFrame, FeatureResponse, GrantsList, HelloAck, MessageStatusResult, PeersList,
    PushFrame, StateChange, StateList, StateResult, TopicCreated, TopicHistoryResponse,
    TopicListResponse, TopicMembersResponse, frames,
};

frames! {
    /// A frame from the broker.
    BrokerFrame, at most BROKER_FRAME_BYTES_MAX {
        HelloAck(HelloAck) => "hello_ack",
        FeatureResponse(FeatureResponse) => "feature_negotiation_response",
        Ack(AckFrame) => "ack",
        Push(PushFrame) => "push",
        Error(ErrorFrame) => "error",
        MessageStatus(MessageStatusResult) => "message_status_result",
        PeersList(PeersList) => "peers_list",
        TopicCreated(TopicCreated) => "topic_created",
        TopicList(TopicListResponse) => "topic_list_response",
        TopicMembers(TopicMembersResponse) => "topic_members_response",
        TopicHistory(TopicHistoryResponse) => "topic_history_response",
        StateChange(StateChange) => "state_change",
        StateResult(StateResult) => "state_result",
        StateList(StateList) => "state_list",
        GrantsList(GrantsList) => "grants_list",
    }
}
